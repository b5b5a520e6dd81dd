// A PDF's pages as pictures, with pdf.js: in a worker, without the document's scripts, and only the parts that a page
// needs are fetched.

const MAX_PIXELS = 16_000_000;

export async function open({ content, vendor, width }) {
  const folder = `${vendor}/pdfjs`;
  const pdfjs = await import(`${folder}/build/pdf.min.mjs`);
  pdfjs.GlobalWorkerOptions.workerSrc = `${folder}/build/pdf.worker.min.mjs`;
  const loading = pdfjs.getDocument({
    url: new URL(content, location.href).href,
    disableAutoFetch: true,
    disableStream: true,
    rangeChunkSize: 262_144,
    isEvalSupported: false,
    enableXfa: false,
    maxImageSize: 100_000_000,
    cMapUrl: `${folder}/cmaps/`,
    cMapPacked: true,
    standardFontDataUrl: `${folder}/standard_fonts/`,
    iccUrl: `${folder}/iccs/`,
    wasmUrl: `${folder}/wasm/`,
  });
  const locked = new Promise((_, reject) => {
    loading.onPassword = () => {
      loading.destroy();
      reject(new Error("it opens only with a password"));
    };
  });
  const pdf = await Promise.race([loading.promise, locked]);
  let drawing = null;
  return {
    pages: pdf.numPages,
    async draw(canvas, number) {
      drawing?.cancel();
      const page = await pdf.getPage(number);
      const natural = page.getViewport({ scale: 1 });
      const density = Math.min(window.devicePixelRatio || 1, 2);
      const largest = Math.sqrt(MAX_PIXELS / (natural.width * natural.height));
      const viewport = page.getViewport({ scale: Math.min((width() / natural.width) * density, largest) });
      canvas.width = Math.max(1, Math.round(viewport.width));
      canvas.height = Math.max(1, Math.round(viewport.height));
      drawing = page.render({ canvas, viewport });
      await drawing.promise;
    },
  };
}
