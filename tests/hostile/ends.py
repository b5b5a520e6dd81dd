"""How a document of each class of attack ends: the one table that tests and fuzzer read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hostile import attacks, picture_attacks

if TYPE_CHECKING:
    from collections.abc import Callable

# How each ends: ``done`` for what a reader may ignore, else the error. Where the limit that is met first
# depends on the machine's speed there is more than one.
READ = frozenset({"done"})
OUT_OF_MEMORY = frozenset({"OOM/page", "CRASH/page", "TIMEOUT/page"})
# The page is blank, and poppler, which unpacks as it draws, may be fast enough to find that out.
OUT_OF_MEMORY_OR_BLANK = OUT_OF_MEMORY | READ
UNPACKED = frozenset({"BOMB/decompression"})
PIXELS = frozenset({"BOMB/pixels"})
NO_PICTURE = frozenset({"CORRUPT/image_unreadable"})
UNREADABLE = frozenset({"CORRUPT/page_unreadable"})
ENDS: dict[Callable[[], bytes], frozenset[str]] = {
    attacks.flate_bomb: OUT_OF_MEMORY_OR_BLANK,
    attacks.flate_in_flate_bomb: OUT_OF_MEMORY_OR_BLANK,
    attacks.lzw_bomb: OUT_OF_MEMORY_OR_BLANK,
    attacks.run_length_bomb: UNPACKED,
    attacks.chained_bomb: UNPACKED,
    attacks.filters_without_end: UNPACKED,
    attacks.image_bomb: PIXELS,
    attacks.object_stream_bomb: READ,
    attacks.text_bomb: OUT_OF_MEMORY | {"BOMB/text"},
    attacks.font_bomb: OUT_OF_MEMORY | READ,
    attacks.mesh_bomb: READ,
    attacks.huge_box: PIXELS,
    attacks.huge_user_unit: READ,
    attacks.box_without_area: READ,
    attacks.box_of_no_numbers: READ,
    picture_attacks.png_of_ten_billion_pixels: PIXELS,
    picture_attacks.png_with_a_bomb_for_a_comment: NO_PICTURE,
    picture_attacks.png_with_a_bomb_for_a_profile: NO_PICTURE,
    picture_attacks.png_with_more_pixels_than_it_says: READ,
    picture_attacks.jpeg_of_four_billion_pixels: PIXELS,
    picture_attacks.tiff_without_end: READ,
    picture_attacks.tiff_with_a_bomb_for_pixels: READ,
    picture_attacks.tiff_of_many_pixels: PIXELS,
    attacks.page_tree_loop: UNREADABLE,
    attacks.page_count_that_lies: READ,
    attacks.xref_loop: READ,
    attacks.outline_loop: READ,
    attacks.object_stream_loop: READ,
    attacks.length_loop: READ,
    attacks.form_loop: READ,
    attacks.form_laughs: OUT_OF_MEMORY,
    attacks.glyph_loop: READ,
    attacks.pattern_loop: frozenset({"TIMEOUT/page"}),
    attacks.soft_mask_loop: READ,
    attacks.colour_space_loop: READ,
    attacks.encryption_loop: frozenset({"ENCRYPTED/certificate_required"}),
    attacks.name_tree_loop: READ,
    attacks.deep_arrays: READ,
    attacks.deep_dictionaries_on_the_page: READ,
    attacks.deep_strings: READ,
    attacks.deep_states: READ,
    attacks.deep_page_tree: UNREADABLE,
    attacks.deep_calculator: READ,
    attacks.million_objects: READ,
    attacks.million_annotations: READ,
    attacks.million_drawings: READ | {"TIMEOUT/page"},
    attacks.size_that_lies: READ,
    attacks.giant_cmap: READ,
    attacks.cmap_bomb: OUT_OF_MEMORY,
    attacks.xfa_entities: READ,
    attacks.metadata_entities: READ,
    attacks.javascript: READ,
    attacks.launch_action: READ,
    attacks.embedded_bomb: READ,
    attacks.broken_jpeg: READ,
    attacks.jpeg_that_lies_about_its_size: READ,
    attacks.broken_jpeg2000: UNREADABLE,
    attacks.jpeg2000_of_many_pixels: UNREADABLE,
    attacks.broken_jbig2: UNREADABLE,
    attacks.ccitt_of_many_columns: UNREADABLE,
    attacks.predictor_of_many_columns: READ,
    attacks.image_that_says_a_trillion_pixels: PIXELS,
    attacks.zip_and_pdf: READ,
    attacks.html_and_pdf: READ,
    attacks.gif_and_pdf: READ,
    attacks.program_and_pdf: READ,
    attacks.jpeg_and_pdf: READ,
}
