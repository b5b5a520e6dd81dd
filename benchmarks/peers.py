"""What people use instead, and the floors: run in the peers' own environment as ``python peers.py NAME``.

Knows nothing of pdf_ops, so that a peer is what a user of it would write.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path

DPI = 200


def naive(out: Path, files: list[Path]) -> None:
    """The worker that people write: pdf2image for the whole document, then pytesseract; two processes.

    The caller sets OMP_THREAD_LIMIT=1: without it this is many times slower.
    """
    from pdf2image import convert_from_path

    pages = []
    with multiprocessing.Pool(2) as pool:
        for file in files:
            images = convert_from_path(str(file), dpi=DPI, fmt="jpeg")
            pages += pool.map(_naive_page, images, chunksize=1)
    _write(out, pages)


def _naive_page(image: object) -> str:
    import pytesseract

    return pytesseract.image_to_string(image, config="--psm 1 --oem 1")


def pypdf(out: Path, files: list[Path]) -> None:
    """Text layers by pypdf."""
    from pypdf import PdfReader

    _write(out, [page.extract_text() for file in files for page in PdfReader(file).pages])


def pdfium(out: Path, files: list[Path]) -> None:
    """The floor for text layers: pdfium's text of each page, and nothing else."""
    import pypdfium2

    pages = []
    for file in files:
        document = pypdfium2.PdfDocument(file)
        for page in document:
            pages.append(page.get_textpage().get_text_range())
            page.close()
        document.close()
    _write(out, pages)


def tesseract(out: Path, files: list[Path]) -> None:
    """The floor for OCR: Tesseract's recognition of pictures that are ready, on its own clock."""
    import numpy as np
    import tesserocr

    folder = files[0]
    setup = json.loads((folder / "setup.json").read_text())
    spent, pages = 0.0, []
    with tesserocr.PyTessBaseAPI(path=setup["data"], lang=setup["languages"], psm=3, oem=1) as api:
        for file in sorted(folder.glob("*.npy")):
            pixels = np.load(file)
            api.SetImageBytes(pixels.tobytes(), pixels.shape[1], pixels.shape[0], 1, pixels.shape[1])
            api.SetSourceResolution(DPI)
            began = time.process_time()
            api.Recognize()
            spent += time.process_time() - began
            pages.append(api.GetUTF8Text())
            api.Clear()
    _write(out, pages)
    out.with_suffix(".cpu").write_text(str(spent))


def _write(out: Path, pages: list[str]) -> None:
    out.write_text(json.dumps(pages))


if __name__ == "__main__":
    peers = {peer.__name__: peer for peer in (naive, pypdf, pdfium, tesseract)}
    peers[sys.argv[1]](Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
