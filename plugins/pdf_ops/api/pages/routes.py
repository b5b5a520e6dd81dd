"""All pages and their files, as the app takes them."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import FileResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import Request

from pdf_ops.api.pages import document_pages, login, run_pages
from pdf_ops.api.pages.rendering import PREFIX, STATIC
from pdf_ops.reporting.page import STYLE

router = APIRouter(prefix=PREFIX, include_in_schema=False)


@router.get("")
async def show_start(request: Request) -> Response:
    """Begin with the documents."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/documents")


@router.get("/report.css")
async def get_style() -> FileResponse:
    """The colours and tables of the report."""
    return FileResponse(STYLE, media_type="text/css")


def add_pages(app: FastAPI) -> None:
    """Serve the pages. Their own files hold no data, so anybody may have them."""
    for one in (router, login.router, run_pages.router, document_pages.router):
        app.include_router(one)
    app.mount(f"{PREFIX}/static", StaticFiles(directory=STATIC), name="static")
