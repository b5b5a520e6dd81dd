// Decodes one page of a TIFF, apart from the page: a file that makes the decoder loop costs this worker only.
"use strict";
importScripts("vendor/pako/dist/pako_inflate.min.js", "vendor/utif2/UTIF.js");

const MAX_PIXELS = 100_000_000;
let file = null;
let frames = [];

onmessage = ({ data }) => {
  try {
    if (data.file) {
      file = data.file;
      frames = UTIF.decode(file);
      postMessage({ pages: frames.length });
      return;
    }
    const frame = frames[data.page - 1];
    const [width, height] = [frame.t256?.[0], frame.t257?.[0]];
    if (!(width > 0 && height > 0 && width * height <= MAX_PIXELS)) throw new Error(`it would have ${width} × ${height} pixels`);
    UTIF.decodeImage(file, frame);
    const pixels = UTIF.toRGBA8(frame);
    postMessage({ pixels, width, height }, [pixels.buffer]);
  } catch (error) {
    postMessage({ error: String(error?.message ?? error) });
  }
};
