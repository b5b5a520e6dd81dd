"""The two planes and the contract between them: who may import whom.

Checked twice. In the source, where imports inside functions and for type checkers count too; and at run time,
where what a library drags along counts.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CONTRACT = REPOSITORY / "plugins" / "pdf_ops" / "contract"
OCR_WORKER = REPOSITORY / "include" / "ocr_worker"

AIRFLOW = {"airflow"}
AWS = {"aiobotocore", "boto3", "botocore"}
PDF_AND_IMAGE = {
    "cv2",
    "fitz",
    "ocrmypdf",
    "pdf2image",
    "pdfminer",
    "pikepdf",
    "PIL",
    "pymupdf",
    "pypdf",
    "pypdfium2",
    "pypdfium2_raw",
    "pytesseract",
    "rapidocr",
    "reportlab",
    "tesserocr",
}
OUTSIDE_THE_CONTRACT = AIRFLOW | AWS | PDF_AND_IMAGE | {"ocr_worker", "local_aws"}
BELOW_INCLUDE = {"include", "ocr_worker", "local_aws"} | {
    path.stem for path in (REPOSITORY / "include").iterdir() if path.is_dir() or path.suffix == ".py"
}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys

package = importlib.import_module(sys.argv[1])
imported = [package.__name__]
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith(".__main__"):  # importing that would run the program
        importlib.import_module(module.name)
        imported.append(module.name)
print(json.dumps({"imported": imported, "loaded": sorted(sys.modules)}))
"""


# --- the detectors -----------------------------------------------------------


def is_within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def imports_of(path: Path) -> list[tuple[int, str]]:
    """Return (line, dotted name) for each import in a file, wherever in the file it stands."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, name.name) for name in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                # A relative import stays inside its package, and lint forbids it anyway.
                found += [(node.lineno, f"{module}.{name.name}") for name in names if level == 0]
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                found.append((node.lineno, module))
    return found


def sources(*roots: Path) -> list[Path]:
    """Return every Python file below the roots; none at all would make a test pass without looking."""
    found = sorted(path for root in roots for path in root.rglob("*.py"))
    assert found, f"there is no Python file below {', '.join(map(str, roots))}"
    return found


def forbidden_imports(paths: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{path}:{line}: {module}"
        for path in paths
        for line, module in imports_of(path)
        if is_within(module, forbidden)
    ]


def imports_beyond(paths: list[Path], allowed: set[str]) -> list[str]:
    return [
        f"{path}:{line}: {module}"
        for path in paths
        for line, module in imports_of(path)
        if not is_within(module, allowed)
    ]


def loaded_by_importing_all_of(package: str, *, path: Path | None = None) -> set[str]:
    """Import a package with all its modules in a new interpreter; return the names in its sys.modules."""
    prelude = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    result = subprocess.run(
        [sys.executable, "-c", prelude + IMPORT_EVERYTHING, package],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=REPOSITORY,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout.splitlines()[-1])
    assert len(answer["imported"]) > 1, f"{package} has no modules"
    return set(answer["loaded"])


def within(modules: set[str], packages: set[str]) -> list[str]:
    return sorted(module for module in modules if is_within(module, packages))


# --- the guarantees ----------------------------------------------------------


def test_the_contract_imports_only_the_standard_library_and_pyarrow():
    allowed = set(sys.stdlib_module_names) | {"pyarrow", "pdf_ops.contract"}

    assert imports_beyond(sources(CONTRACT), allowed) == []


def test_the_worker_never_imports_airflow():
    assert forbidden_imports(sources(OCR_WORKER), AIRFLOW) == []


def test_the_control_plane_never_imports_what_lies_below_include():
    # MWAA has dags/ and plugins/, and no include/.
    paths = sources(REPOSITORY / "plugins", REPOSITORY / "dags")

    assert forbidden_imports(paths, BELOW_INCLUDE) == []


def test_importing_the_whole_contract_loads_neither_airflow_nor_aws_nor_a_pdf_library():
    loaded = loaded_by_importing_all_of("pdf_ops.contract")

    assert within(loaded, OUTSIDE_THE_CONTRACT) == []


def test_importing_the_whole_worker_does_not_load_airflow():
    loaded = loaded_by_importing_all_of("ocr_worker")

    assert within(loaded, AIRFLOW) == []


# --- and the detectors detect ------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "import airflow",
        "import airflow.sdk as sdk",
        "from airflow import DAG",
        "from airflow.sdk import dag",
        "def later():\n    import airflow.sdk",
        "if TYPE_CHECKING:\n    from airflow.sdk import dag",
        "try:\n    import json, airflow\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('airflow.sdk')",
        "__import__('airflow')",
    ],
)
def test_every_form_of_a_forbidden_import_is_found(tmp_path: Path, statement: str):
    module = tmp_path / "module.py"
    module.write_text(statement + "\n")

    assert len(forbidden_imports(sources(tmp_path), AIRFLOW)) == 1
    assert len(imports_beyond(sources(tmp_path), set(sys.stdlib_module_names))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "import ocr_worker",
        "from ocr_worker.cli import main",
        "from include import ocr_worker",
        "import local_aws.server",
    ],
)
def test_an_import_from_below_include_is_found(tmp_path: Path, statement: str):
    (tmp_path / "module.py").write_text(statement + "\n")

    assert len(forbidden_imports(sources(tmp_path), BELOW_INCLUDE)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "import numpy",
        "from pypdf import PdfReader",
        "import pdf_ops",
        "from pdf_ops.settings import Settings",
    ],
)
def test_an_import_beyond_what_the_contract_may_use_is_found(tmp_path: Path, statement: str):
    (tmp_path / "module.py").write_text(statement + "\n")
    allowed = set(sys.stdlib_module_names) | {"pyarrow", "pdf_ops.contract"}

    assert len(imports_beyond(sources(tmp_path), allowed)) == 1


def test_a_name_that_only_begins_like_a_forbidden_one_is_let_through(tmp_path: Path):
    (tmp_path / "module.py").write_text("import airflow_like\nfrom airflows import dag\n")

    assert forbidden_imports(sources(tmp_path), AIRFLOW) == []


def test_an_empty_folder_is_an_error_and_not_a_pass(tmp_path: Path):
    with pytest.raises(AssertionError, match="no Python file"):
        sources(tmp_path)


def test_what_an_import_drags_along_at_run_time_is_found(tmp_path: Path):
    # The package itself never says "airflow": a library that it uses does.
    package = tmp_path / "guilty"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text("import innocent_library\n")
    (tmp_path / "innocent_library.py").write_text("import airflow\n")
    (tmp_path / "airflow.py").write_text("")

    assert forbidden_imports(sources(package), AIRFLOW) == []
    assert within(loaded_by_importing_all_of("guilty", path=tmp_path), AIRFLOW) == ["airflow"]
