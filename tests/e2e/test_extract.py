"""A folder of files becomes rows: what a user of ``ocr-worker extract`` can rely on. Nothing is mocked."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pikepdf
import pytest
from tests.support.worker import OCR_WORKER, extract, rows_in

from pdf_ops.contract.pages import varying_columns
from samples import documents as made

if TYPE_CHECKING:
    from pathlib import Path


# --- where text comes from ----------------------------------------------------


def test_a_good_text_layer_is_taken_as_it_is(tmp_path: Path) -> None:
    result = extract(made.text_pdf(tmp_path / "a.pdf", 3), tmp_path / "out")

    assert result.exit_code == 0
    assert [(row["page"], row["page_count"], row["method"]) for row in result.pages] == [
        (1, 3, "text_layer"),
        (2, 3, "text_layer"),
        (3, 3, "text_layer"),
    ]
    assert result.pages[0]["text"].split() == " ".join(made.PARAGRAPH).split()
    assert result.pages[0]["method_reason"] == "good_text_layer"
    assert result.pages[0]["ocr_confidence"] is None


def test_a_scan_is_read_by_ocr_and_says_how_sure_it_is(tmp_path: Path) -> None:
    result = extract(made.scan_pdf(tmp_path / "a.pdf", [made.scan()]), tmp_path / "out")

    (row,) = result.pages
    assert (row["method"], row["method_reason"]) == ("ocr", "no_text_layer")
    assert made.share_read(row["text"]) > 0.95
    assert row["ocr_confidence"] > 80
    assert row["ocr_words"] > 80
    assert row["image_coverage"] == pytest.approx(1.0, abs=0.02)
    assert row["dpi"] == pytest.approx(200, abs=2)


def test_one_typed_page_does_not_switch_ocr_off_for_the_scanned_ones(tmp_path: Path) -> None:
    result = extract(made.mixed_pdf(tmp_path / "a.pdf"), tmp_path / "out")

    assert [row["method"] for row in result.pages] == ["text_layer", "ocr", "ocr"]
    assert all(made.share_read(row["text"]) > 0.95 for row in result.pages)


def test_a_layer_of_private_use_glyphs_is_not_believed(tmp_path: Path) -> None:
    result = extract(made.damaged_font_pdf(tmp_path / "a.pdf"), tmp_path / "out")

    (row,) = result.pages
    assert (row["method"], row["method_reason"]) == ("ocr", "private_use_glyphs")
    assert row["layer_bad_ratio"] > 0.5
    assert made.share_read(row["text"]) > 0.95


def test_invisible_text_over_a_scan_is_read_again_unless_it_is_trusted(tmp_path: Path) -> None:
    path = made.ocr_layer_pdf(tmp_path / "a.pdf", ["what an earlier program made of this page"] * 8)

    (doubted,) = extract(path, tmp_path / "doubted").pages
    (trusted,) = extract(path, tmp_path / "trusted", "--trust-ocr-layer").pages

    assert (doubted["method"], doubted["method_reason"]) == ("ocr", "invisible_text")
    assert made.share_read(doubted["text"]) > 0.95
    assert (trusted["method"], trusted["method_reason"]) == ("text_layer", "trusted_ocr_layer")
    assert trusted["text"].startswith("what an earlier program")


def test_ocr_can_be_forced_and_switched_off(tmp_path: Path) -> None:
    typed, scanned = made.text_pdf(tmp_path / "a.pdf"), made.scan_pdf(tmp_path / "b.pdf", [made.scan()])

    forced = extract([typed], tmp_path / "forced", "--ocr", "force")
    off = extract([scanned], tmp_path / "off", "--ocr", "off")

    assert [(row["method"], row["method_reason"]) for row in forced.pages] == [("ocr", "forced")]
    assert made.share_read(forced.text) > 0.95
    assert [(row["method"], row["method_reason"], row["text"]) for row in off.pages] == [
        ("none", "ocr_off", "")
    ]


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_page_that_is_turned_is_read_as_well_as_an_upright_one(tmp_path: Path, turned: int) -> None:
    result = extract(made.scan_pdf(tmp_path / "a.pdf", [made.scan(turned=turned)]), tmp_path / "out")

    (row,) = result.pages
    assert made.share_read(row["text"]) > 0.95
    assert row["rotation_detected"] == (360 - turned) % 360


def test_a_blank_page_costs_no_ocr(tmp_path: Path) -> None:
    result = extract(made.scan_pdf(tmp_path / "a.pdf", [made.blank_scan()]), tmp_path / "out")

    (row,) = result.pages
    assert (row["method"], row["method_reason"], row["text"]) == ("empty", "blank_page", "")
    assert row["ocr_attempts"] == 0


def test_uneven_light_does_not_hide_the_text(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    page = np.asarray(made.scan(), dtype=np.float32)
    shade = np.linspace(1.0, 0.25, page.shape[1], dtype=np.float32)
    dark = Image.fromarray((page * shade).astype(np.uint8))

    (row,) = extract(made.scan_pdf(tmp_path / "a.pdf", [dark]), tmp_path / "out").pages

    assert made.share_read(row["text"]) > 0.9


def test_pytesseract_stands_in_for_tesserocr(tmp_path: Path) -> None:
    path = made.scan_pdf(tmp_path / "a.pdf", [made.scan(), made.scan(turned=180)])

    result = extract(path, tmp_path / "out", "--recognizer", "pytesseract")

    assert all(row["ocr_engine"].startswith("pytesseract") for row in result.pages)
    assert all(made.share_read(row["text"]) > 0.95 for row in result.pages)


# --- inputs -------------------------------------------------------------------


def test_images_are_read_by_content_and_not_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "named.pdf").write_bytes(made.png_bytes(made.scan()))
    made.scan().convert("RGB").save(folder / "photo", "JPEG", dpi=(200, 200))
    made.tiff(folder / "fax.bin", [made.scan(), made.blank_scan(), made.scan(turned=180)])

    result = extract(folder, tmp_path / "out")

    assert result.outcomes == {"fax.bin": "done", "named.pdf": "done", "photo": "done"}
    assert [row["media_type"] for row in result.documents] == ["image/tiff", "image/png", "image/jpeg"]
    assert [row["method"] for row in result.pages] == ["ocr", "empty", "ocr", "ocr", "ocr"]
    assert all(made.share_read(row["text"]) > 0.9 for row in result.pages if row["method"] == "ocr")


def test_each_kind_of_unreadable_file_has_its_own_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "empty.pdf").write_bytes(b"")
    (folder / "html.pdf").write_bytes(b"<!DOCTYPE html><html><body>404 not found</body></html>")
    (folder / "notes.txt").write_bytes(b"just some notes")
    (folder / "noise.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (folder / "garbage.pdf").write_bytes(b"%PDF-1.7\n" + b"garbage " * 999 + b"\n%%EOF\n")
    made.truncated_pdf(folder / "truncated.pdf")
    made.encrypted_pdf(folder / "encrypted.pdf", "secret")
    made.pageless_pdf(folder / "pageless.pdf")
    made.text_pdf(folder / "good.pdf")

    result = extract(folder, tmp_path / "out")

    assert result.outcomes == {
        "empty.pdf": "failed CORRUPT/empty_file",
        "encrypted.pdf": "failed ENCRYPTED/password_required",
        "garbage.pdf": "failed CORRUPT/unreadable",
        "good.pdf": "done",
        "html.pdf": "failed CORRUPT/not_a_pdf",
        "noise.png": "failed CORRUPT/image_unreadable",
        "notes.txt": "skipped POLICY/unsupported_type",
        "pageless.pdf": "failed CORRUPT/no_pages",
        "truncated.pdf": "failed CORRUPT/truncated",
    }
    assert result.exit_code == 1
    assert [row["source_uri"].rsplit("/", 1)[1] for row in result.pages] == ["good.pdf"]
    assert "an HTML page" in result.errors


def test_a_file_without_pages_is_not_taken_for_the_encrypted_one_before_it(tmp_path: Path) -> None:
    """pdfium keeps the error of an earlier document when it sets none itself."""
    paths = [made.encrypted_pdf(tmp_path / "a.pdf", "secret"), made.pageless_pdf(tmp_path / "b.pdf")]

    result = extract(paths, tmp_path / "out", "--processes", "1")

    assert result.outcomes == {
        "a.pdf": "failed ENCRYPTED/password_required",
        "b.pdf": "failed CORRUPT/no_pages",
    }


def test_an_encrypted_document_opens_with_its_password_only(tmp_path: Path) -> None:
    path = made.encrypted_pdf(tmp_path / "a.pdf", "secret")

    right = extract(path, tmp_path / "right", env={"OCR_PASSWORD": "secret"})
    wrong = extract(path, tmp_path / "wrong", "--password", "guess")

    assert right.outcomes == {"a.pdf": "done"}
    assert made.share_read(right.text) == 1.0
    assert wrong.outcomes == {"a.pdf": "failed ENCRYPTED/password_wrong"}


def test_a_page_that_would_be_too_many_pixels_is_an_error_row_and_the_others_are_read(tmp_path: Path) -> None:
    result = extract(made.huge_page_pdf(tmp_path / "a.pdf"), tmp_path / "out")

    assert result.outcomes == {"a.pdf": "partial BOMB/pixels"}
    assert result.page_errors == [None, "BOMB/pixels"]
    assert made.share_read(result.pages[0]["text"]) == 1.0


def test_odd_images_are_read_as_a_viewer_shows_them(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    folder = tmp_path / "in"
    folder.mkdir()
    page = made.scan()
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned clockwise by 90 degrees.
    page.transpose(Image.Transpose.ROTATE_90).save(folder / "a-exif.jpg", exif=exif, dpi=(200, 200))
    exif[0x0112] = 2  # Mirrored.
    page.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "b-mirrored.jpg", exif=exif, dpi=(200, 200))
    page.save(folder / "c-broken-exif.jpg", exif=b"Exif\x00\x00garbage" * 3, dpi=(200, 200))
    clear = Image.merge("LA", (Image.new("L", page.size, 0), page.point(lambda level: 255 - level)))
    clear.save(folder / "d-transparent.png", dpi=(200, 200))
    deep = np.asarray(page).astype(np.uint16) << 8
    Image.fromarray(deep).save(folder / "e-16-bit.tiff", dpi=(200, 200))
    page.point(lambda level: 255 * (level > 128)).convert("1").save(
        folder / "f-fax.tiff", compression="group4", dpi=(200, 200)
    )
    page.convert("CMYK").save(folder / "g-print.jpg", dpi=(200, 200))

    result = extract(folder, tmp_path / "out")

    assert set(result.outcomes.values()) == {"done"}
    read = {row["source_uri"][-12:]: made.share_read(row["text"]) for row in result.pages}
    assert len(read) == 7
    assert min(read.values()) > 0.9, read


def test_a_page_that_is_one_transparent_image_is_not_taken_for_blank(tmp_path: Path) -> None:
    """Its own pixels are all black; only with its mask does it show text."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    ink = made.scan().point(lambda level: 255 - level)
    image = Image.merge("RGBA", [Image.new("L", ink.size, 0)] * 3 + [ink])
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(595, 842))
    canvas.drawImage(ImageReader(image), 0, 0, 595, 842, mask="auto")
    canvas.save()

    (row,) = extract(tmp_path / "a.pdf", tmp_path / "out").pages

    assert made.share_read(row["text"]) > 0.9


def test_what_was_filled_into_a_form_is_part_of_the_text(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    made.draw_text(canvas, made.PARAGRAPH)
    canvas.acroForm.textfield(name="name", value="Ford Prefect", x=60, y=300, width=200, height=20)
    canvas.save()

    (row,) = extract(tmp_path / "a.pdf", tmp_path / "out").pages

    assert "Ford Prefect" in row["text"]
    assert made.share_read(row["text"]) == 1.0


def test_pale_print_is_not_taken_for_a_blank_page(tmp_path: Path) -> None:
    pale = made.scan_pdf(tmp_path / "a.pdf", [made.scan(ink=205)])
    lone = made.scan_pdf(tmp_path / "b.pdf", [made.scan(["17"])])

    result = extract([pale, lone], tmp_path / "out")

    assert made.share_read(result.pages[0]["text"]) > 0.9
    assert result.pages[1]["text"] == "17"


def test_parsers_that_count_other_pages_are_not_mixed(tmp_path: Path) -> None:
    """With a page missing in the middle, the second parser's page 2 is the first parser's page 3."""
    path = made.text_pdf(
        tmp_path / "a.pdf", [["first page of three"] * 9, ["lost"], ["third page of three"] * 9]
    )
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.Root.Pages.Kids[1] = pikepdf.Name("/Null")
        pdf.save(path)

    result = extract(path, tmp_path / "out")

    assert [row["page"] for row in result.pages] == list(range(1, result.documents[0]["page_count"] + 1))
    assert sum("third page" in row["text"] for row in result.pages) == 1


def test_a_password_that_one_document_needs_does_not_lock_the_others(tmp_path: Path) -> None:
    locked = made.encrypted_pdf(tmp_path / "a.pdf", "secret")
    open_to_all = made.encrypted_pdf(tmp_path / "b.pdf", "")

    result = extract([locked, open_to_all], tmp_path / "out", "--password", "secret")

    assert result.outcomes == {"a.pdf": "done", "b.pdf": "done"}


def test_limits_on_size_and_pages_skip_a_document_and_say_so(tmp_path: Path) -> None:
    long = made.text_pdf(tmp_path / "long.pdf", 5)
    large = tmp_path / "large.pdf"
    large.write_bytes(made.text_pdf(tmp_path / "x.pdf").read_bytes() + b"\n" * 1_100_000)

    result = extract([long, large], tmp_path / "out", "--max-pages", "4", "--max-megabytes", "1")

    assert result.outcomes == {
        "large.pdf": "skipped POLICY/too_large",
        "long.pdf": "skipped POLICY/too_many_pages",
    }
    assert result.exit_code == 0


# --- outputs ------------------------------------------------------------------


def test_the_same_input_gives_the_same_rows_but_for_times(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    made.text_pdf(folder / "a.pdf", 30)
    made.mixed_pdf(folder / "b.pdf")
    made.huge_page_pdf(folder / "c.pdf")
    (folder / "d.pdf").write_bytes(b"")

    first = extract(folder, tmp_path / "first")
    second = extract(folder, tmp_path / "second", "--processes", "1")

    fixed = [name for name in first.pages[0] if name not in varying_columns()]
    assert [[row[name] for name in fixed] for row in first.pages] == [
        [row[name] for name in fixed] for row in second.pages
    ]
    assert first.outcomes == second.outcomes


def test_rows_equal_page_counts_for_every_document(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(20):
        made.text_pdf(folder / f"{number:02d}.pdf", 1 + number * 7 % 40)

    result = extract(folder, tmp_path / "out")

    assert len(result.documents) == 20
    for document in result.documents:
        numbers = [row["page"] for row in result.pages if row["source_uri"] == document["source_uri"]]
        assert numbers == list(range(1, document["page_count"] + 1))
        assert document["pages_written"] == document["page_count"]


def test_jsonl_and_text_files_for_people_without_parquet_tools(tmp_path: Path) -> None:
    path = made.text_pdf(tmp_path / "a.pdf", [made.PARAGRAPH, ["second page"] * 10])
    flags = ["--format", "jsonl", "--text-dir", str(tmp_path / "texts")]

    result = extract(path, tmp_path / "out", *flags)

    assert result.exit_code == 0
    lines = (tmp_path / "out" / "pages.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["page"] for line in lines] == [1, 2]
    assert not list((tmp_path / "out").glob("*.parquet"))
    first, second = (tmp_path / "texts" / "a.pdf.txt").read_text(encoding="utf-8").split("\f")
    assert made.share_read(first) == 1.0
    assert second.startswith("second page")


def test_the_output_folder_may_lie_inside_the_input_folder(tmp_path: Path) -> None:
    made.text_pdf(tmp_path / "a.pdf")

    for _ in range(2):
        result = extract(tmp_path, tmp_path / "out")

    assert result.outcomes == {"a.pdf": "done"}


def test_nothing_is_left_behind_in_the_scratch_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    extract(made.mixed_pdf(tmp_path / "a.pdf"), tmp_path / "out", "--scratch-dir", str(scratch))

    assert not list(scratch.iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "documents.parquet",
        "pages.parquet",
    ]


# --- for people ---------------------------------------------------------------


def test_the_closing_table_counts_outcomes_and_says_what_to_do(tmp_path: Path) -> None:
    good, bad = made.text_pdf(tmp_path / "a.pdf"), made.encrypted_pdf(tmp_path / "b.pdf", "secret")

    result = extract([good, bad], tmp_path / "out")

    lines = result.output.splitlines()
    assert lines[0].split() == ["documents", "2"]
    assert lines[1].split() == ["done", "1"]
    assert any(
        line.startswith("ENCRYPTED/password_required  ") and "qpdf --decrypt" in line for line in lines
    )
    assert any(line.split()[:1] == ["text"] for line in lines)


def test_json_lines_tell_a_program_everything(tmp_path: Path) -> None:
    good, bad = made.text_pdf(tmp_path / "a.pdf"), tmp_path / "b.pdf"
    bad.write_bytes(b"")

    result = extract([good, bad], tmp_path / "out", "--json")

    events = [json.loads(line) for line in result.output.splitlines()]
    assert [event["event"] for event in events] == ["document", "document", "finished"]
    assert events[1]["error_class"] == "CORRUPT"
    assert events[2]["documents"] == {"total": 2, "done": 1, "partial": 0, "failed": 1, "skipped": 0}
    assert result.errors == ""


def test_a_terminal_shows_a_progress_bar(tmp_path: Path) -> None:
    path = made.mixed_pdf(tmp_path / "a.pdf")
    ours, theirs = pty.openpty()
    command = [*OCR_WORKER, "extract", str(path), "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # The other end is closed.
                break
            if not chunk:
                break
            shown += chunk
    os.close(ours)

    assert process.returncode == 0
    assert b"pages/s" in shown
    assert b"1/1 documents" in shown


def test_a_missing_language_stops_at_the_start_and_names_the_package(tmp_path: Path) -> None:
    result = extract(made.text_pdf(tmp_path / "a.pdf"), tmp_path / "out", "--languages", "eng+xxx+chi_sim")

    assert result.exit_code == 2
    assert "apt-get install tesseract-ocr-xxx tesseract-ocr-chi-sim" in result.errors
    assert not (tmp_path / "out").exists()


def test_wrong_usage_is_named_at_once_and_writes_nothing(tmp_path: Path) -> None:
    path = made.text_pdf(tmp_path / "a.pdf")

    settings = extract(
        path, tmp_path / "out", "--dpi", "9", env={"OCR_MODE": "sometimes", "MAX_WORKERS": "0"}
    )
    missing = extract([tmp_path / "no.pdf", tmp_path / "nor.pdf"], tmp_path / "out")

    assert (settings.exit_code, missing.exit_code) == (2, 2)
    assert "--dpi: '9' is too small; accepts a whole number from 36 up to 1200" in settings.errors
    assert "OCR_MODE (environment): 'sometimes' is none of them; accepts auto, force, off" in settings.errors
    assert "MAX_WORKERS (environment): '0' is too small" in settings.errors
    assert "no.pdf" in missing.errors
    assert "nor.pdf" in missing.errors
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_an_error_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, not a folder")

    ran = subprocess.run(
        [*OCR_WORKER, "extract", str(made.text_pdf(tmp_path / "a.pdf")), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2
    assert "TARGET/disk" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_files_properly(tmp_path: Path, number: signal.Signals) -> None:
    paths = [
        made.scan_pdf(tmp_path / "long.pdf", [made.scan()] * 60),
        made.text_pdf(tmp_path / "next.pdf", 2),
    ]
    out = tmp_path / "out"
    command = [*OCR_WORKER, "extract", *map(str, paths), "--out", str(out), "--processes", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (out / f".pages.parquet.{process.pid}.partial").exists():
            time.sleep(0.05)
        time.sleep(3)  # Into the first pages.
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)

    result = rows_in(out)
    assert process.returncode == 1
    assert "LOST/cancelled" in output
    assert len(result.documents) == 2
    assert [row["page"] for row in result.pages if row["page_count"] == 60] == list(range(1, 61))
    assert result.page_errors[59] == "LOST/cancelled"
    assert sorted(path.name for path in out.iterdir()) == ["documents.parquet", "pages.parquet"]


def test_a_profile_shows_the_main_process_and_the_page_processes(tmp_path: Path) -> None:
    path = made.text_pdf(tmp_path / "a.pdf", 300)

    extract(path, tmp_path / "out", "--profile", str(tmp_path / "profile.txt"))
    extract(path, tmp_path / "out", "--profile", str(tmp_path / "profile.html"))

    report = (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert "Main process" in report
    assert "Page processes" in report
    assert "PageProcess" in report
    assert "<html" in (tmp_path / "profile.html").read_text(encoding="utf-8")


def test_doctor_names_engines_languages_and_limits(tmp_path: Path) -> None:
    ran = subprocess.run([*OCR_WORKER, "doctor"], capture_output=True, text=True, check=False, cwd=tmp_path)
    bad = subprocess.run(
        [*OCR_WORKER, "doctor", "--languages", "xxx"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert ran.returncode == 0
    for name in (
        "pdfium",
        "pypdf",
        "pillow",
        "poppler",
        "tesserocr",
        "pytesseract",
        "eng",
        "memory",
        "CPU time",
    ):
        assert name in ran.stdout
    assert bad.returncode == 2
    assert "apt-get install tesseract-ocr-xxx" in bad.stdout
