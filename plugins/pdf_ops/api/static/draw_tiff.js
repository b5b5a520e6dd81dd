// A TIFF's pages as pictures: no browser shows them by itself.

const MAX_BYTES = 200_000_000;
const TIMEOUT_MS = 20_000;

function ask(worker, message) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      worker.terminate();
      reject(new Error("decoding it took more than 20 seconds"));
    }, TIMEOUT_MS);
    worker.onmessage = ({ data }) => {
      clearTimeout(late);
      if (data.error) reject(new Error(data.error));
      else resolve(data);
    };
    worker.onerror = (event) => {
      clearTimeout(late);
      reject(new Error(event.message || "the decoder could not be loaded"));
    };
    worker.postMessage(message, message.file ? [message.file] : []);
  });
}

export async function open({ content, scripts }) {
  const answer = await fetch(content, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  if (Number(answer.headers.get("content-length")) > MAX_BYTES) {
    throw new Error("it is larger than 200 MB, too large to decode here");
  }
  const worker = new Worker(`${scripts}/tiff_worker.js`);
  const { pages } = await ask(worker, { file: await answer.arrayBuffer() });
  let last = Promise.resolve();
  return {
    pages,
    // One after the other: the worker answers in the order of the questions.
    draw(canvas, number) {
      last = last.catch(() => {}).then(async () => {
        const { pixels, width, height } = await ask(worker, { page: number });
        canvas.width = width;
        canvas.height = height;
        canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
      });
      return last;
    },
  };
}
