from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ocr_worker.builders import STEADY

from ocr_worker.engines import TextLayer
from ocr_worker.quality import (
    FEW_CHARACTERS,
    FEW_CHARACTERS_OUTLINED,
    MANY_PATHS,
    MAX_BAD,
    MAX_INVISIBLE,
    MAX_UNMAPPED,
    MIN_CHARACTERS,
    MIN_PAIRS,
    MIN_WORDLIKE,
    SAMPLE_CHARACTERS,
    is_gibberish,
    judge,
    wordlike_ratio,
)
from pdf_ops.contract.pages import MethodReason

ENGLISH = (
    "The tenant shall pay the rent on the first day of each month, without deduction, to the account that "
    "the landlord has named in writing. If the rent is more than ten days late, interest is due at the rate "
    "that the law allows. Either party may end this agreement with three months of notice, given in writing."
)
LANGUAGES = {
    "English": ENGLISH,
    "German": (
        "Der Mieter zahlt die Miete spätestens am dritten Werktag eines jeden Monats auf das Konto des "
        "Vermieters. Kommt er länger als zehn Tage in Verzug, so werden Zinsen in gesetzlicher Höhe fällig. "
        "Schönheitsreparaturen übernimmt der Mieter gemäß der beigefügten Aufstellung auf eigene Kosten."
    ),
    "French": (
        "Le locataire s'engage à payer le loyer le premier jour de chaque mois, sans déduction, sur le "
        "compte désigné par le bailleur. En cas de retard supérieur à dix jours, des intérêts seront dus "
        "au taux légal. Chaque partie peut résilier le présent contrat moyennant un préavis de trois mois."
    ),
    "Polish": (
        "Najemca zobowiązuje się płacić czynsz do dziesiątego dnia każdego miesiąca na rachunek bankowy "
        "wskazany przez wynajmującego. W razie opóźnienia należą się odsetki ustawowe. Każda ze stron może "
        "wypowiedzieć umowę z zachowaniem trzymiesięcznego okresu wypowiedzenia, na koniec miesiąca."
    ),
    "Spanish": (
        "El arrendatario pagará la renta el primer día de cada mes, sin deducción alguna, en la cuenta que "
        "designe el arrendador. Si el pago se retrasa más de diez días, se devengarán intereses al tipo "
        "legal. Cualquiera de las partes podrá rescindir el contrato con un preaviso de tres meses."
    ),
    "Czech": (
        "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím "
        "a mají spolu jednat v duchu bratrství. Každý má všechna práva a všechny svobody, stanovené touto "
        "deklarací, bez jakéhokoli rozlišování."
    ),
    "Finnish": (
        "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu "
        "järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä."
    ),
    "Hungarian": (
        "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és "
        "lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek."
    ),
    "Turkish": (
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
        "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler."
    ),
    "Vietnamese": (
        "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều "
        "được tạo hoá ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu."
    ),
    "Welsh": (
        "Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau. Fe'u cynysgaeddir â rheswm a "
        "chydwybod, a dylai pawb ymddwyn y naill at y llall mewn ysbryd cymodlon."
    ),
    "Russian": (
        "Наниматель обязуется вносить плату за жилое помещение не позднее десятого числа каждого месяца на "
        "счёт, указанный наймодателем. При просрочке начисляются проценты в размере, установленном законом."
    ),
    "Greek": (
        "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι "
        "προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με "
        "πνεύμα αδελφοσύνης."
    ),
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。" * 4,
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。" * 4,
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. " * 5,
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا. " * 4,
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון. " * 4,
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। " * 4,
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม " * 4,
}

INVOICE_TABLE = "\n".join(
    f"{number:05d}  2024-03-{number % 28 + 1:02d}  {number * 17 % 991},{number % 100:02d}  "
    f"{number * 31 % 9973}.50  19 %  EUR"
    for number in range(1, 40)
)
CONTENTS = "\n".join(
    f"{chapter}.{section} Section {'.' * 60} {chapter * 10 + section}"
    for chapter in range(1, 6)
    for section in range(1, 6)
)


def shifted(text: str, by: int) -> str:
    """What a font gives whose character map is off by some places."""
    return "".join(chr((ord(c) - 97 + by) % 26 + 97) if c.islower() and c.isascii() else c for c in text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_good_text_of_any_language_is_taken(language):
    verdict = judge(TextLayer(text=LANGUAGES[language], unmapped_ratio=0.0, invisible_ratio=0.0))
    assert verdict.is_good
    assert verdict.reason is MethodReason.GOOD_TEXT_LAYER
    assert verdict.bad_ratio == 0.0


@pytest.mark.parametrize("text", [INVOICE_TABLE, CONTENTS, "Total: 1,234.50 EUR", ENGLISH.upper()])
def test_tables_contents_pages_and_short_pages_are_taken(text):
    assert judge(TextLayer(text=text)).reason is MethodReason.GOOD_TEXT_LAYER


def test_figures_that_the_parser_does_not_know_speak_for_the_layer():
    assert judge(TextLayer(text=ENGLISH)).is_good


@pytest.mark.parametrize("text", ["", " ", "\n \t\r\n", " \u00a0\n" * 1000])
@pytest.mark.parametrize(
    ("is_drawn", "reason"), [(True, MethodReason.NO_TEXT_LAYER), (False, MethodReason.NOTHING_DRAWN)]
)
def test_a_page_of_white_space_has_no_text_layer_or_nothing_at_all(text, is_drawn, reason):
    verdict = judge(TextLayer(text=text, is_drawn=is_drawn))
    assert not verdict.is_good
    assert verdict.reason is reason


@pytest.mark.parametrize(
    ("characters", "is_good"), [(MIN_CHARACTERS - 1, False), (MIN_CHARACTERS, True), (40, True)]
)
def test_a_handful_of_characters_is_too_few_and_white_space_does_not_count(characters, is_good):
    text = "page 1 of 200 of the report of the board, as adopted".replace(" ", "")[:characters]
    verdict = judge(TextLayer(text=" \n ".join(text)))
    assert verdict.is_good is is_good
    assert is_good or verdict.reason is MethodReason.TOO_FEW_CHARACTERS


@pytest.mark.parametrize(
    ("characters", "coverage", "is_good"),
    [
        (FEW_CHARACTERS - 1, 0.9, False),
        (FEW_CHARACTERS - 1, 0.5, True),
        (FEW_CHARACTERS - 1, None, True),
        (FEW_CHARACTERS, 0.9, True),
    ],
)
def test_a_stamp_over_a_scan_is_too_few_characters(characters, coverage, is_good):
    text = ENGLISH.replace(" ", "")[:characters]
    verdict = judge(TextLayer(text=text, image_coverage=coverage))
    assert verdict.is_good is is_good
    assert is_good or verdict.reason is MethodReason.TOO_FEW_CHARACTERS


@pytest.mark.parametrize(
    ("characters", "paths", "is_good"),
    [
        (FEW_CHARACTERS_OUTLINED - 1, MANY_PATHS + 1, False),
        (FEW_CHARACTERS_OUTLINED - 1, MANY_PATHS, True),
        (FEW_CHARACTERS_OUTLINED, MANY_PATHS + 1, True),
    ],
)
def test_text_drawn_as_outlines_beside_a_few_characters_is_too_few(characters, paths, is_good):
    text = ENGLISH.replace(" ", "")[:characters]
    verdict = judge(TextLayer(text=text, path_count=paths))
    assert verdict.is_good is is_good
    assert is_good or verdict.reason is MethodReason.TOO_FEW_CHARACTERS


BAD = {
    MethodReason.PRIVATE_USE_GLYPHS: ["\ue000", "\uf8ff", "\U000f0000", "\U0010fffd"],
    MethodReason.REPLACEMENT_CHARACTERS: ["\ufffd"],
    MethodReason.CONTROL_CHARACTERS: ["\x01", "\x1b", "\x7f", "\x9f", "\uffff", "\ufffe"],
    MethodReason.CID_RUNS: ["(cid:7)", "(cid:12345)"],
}
EACH_BAD = pytest.mark.parametrize(
    ("reason", "bad"), [(reason, bad) for reason, group in BAD.items() for bad in group], ids=ascii
)


@EACH_BAD
def test_a_layer_full_of_what_cannot_be_meant_is_refused_for_it(reason, bad):
    verdict = judge(TextLayer(text=bad * 300))
    assert not verdict.is_good
    assert verdict.reason is reason
    assert verdict.bad_ratio == 1.0


@EACH_BAD
def test_an_odd_bullet_or_two_does_not_spoil_a_page(reason, bad):
    verdict = judge(TextLayer(text=ENGLISH + bad * 2))
    assert verdict.is_good
    assert 0 < verdict.bad_ratio < MAX_BAD


@EACH_BAD
def test_a_page_is_spoilt_by_more_than_one_bad_character_in_ten(reason, bad):
    text = ENGLISH.replace(" ", "")
    times = len(text) // (8 * len(bad)) + 1
    verdict = judge(TextLayer(text=text + bad * times))
    assert verdict.reason is reason
    assert MAX_BAD < verdict.bad_ratio < 0.15


def test_just_one_bad_character_in_ten_is_still_a_good_page():
    text = ENGLISH.replace(" ", "")[:180]
    assert judge(TextLayer(text=text + "\ue000" * 20)).is_good
    assert not judge(TextLayer(text=text + "\ue000" * 21)).is_good


def test_of_several_kinds_of_bad_characters_the_most_frequent_is_named():
    text = ENGLISH + "\ue000" * 40 + "\ufffd" * 60
    assert judge(TextLayer(text=text)).reason is MethodReason.REPLACEMENT_CHARACTERS


def test_tabs_line_breaks_and_form_feeds_are_not_control_characters():
    assert judge(TextLayer(text=ENGLISH.replace(" ", "\t\r\n\f\v"))).bad_ratio == 0.0


@pytest.mark.parametrize(
    ("ratio", "is_good"), [(MAX_UNMAPPED, True), (MAX_UNMAPPED + 0.01, False), (1.0, False)]
)
def test_glyphs_without_a_mapping_to_unicode_spoil_a_page(ratio, is_good):
    verdict = judge(TextLayer(text=ENGLISH, unmapped_ratio=ratio))
    assert verdict.is_good is is_good
    assert verdict.bad_ratio == ratio
    assert is_good or verdict.reason is MethodReason.UNMAPPED_GLYPHS


@pytest.mark.parametrize("coverage", [None, 0.0, 1.0])
def test_an_invisible_layer_is_doubted_unless_the_settings_trust_it(coverage):
    layer = TextLayer(text=ENGLISH, invisible_ratio=MAX_INVISIBLE + 0.1, image_coverage=coverage)
    doubted = judge(layer)
    assert not doubted.is_good
    assert doubted.reason is MethodReason.INVISIBLE_TEXT
    trusted = judge(layer, trust_invisible=True)
    assert trusted.is_good
    assert trusted.reason is MethodReason.TRUSTED_OCR_LAYER


def test_a_few_invisible_glyphs_are_nothing_to_doubt():
    layer = TextLayer(text=ENGLISH, invisible_ratio=MAX_INVISIBLE)
    assert judge(layer).reason is MethodReason.GOOD_TEXT_LAYER
    assert judge(layer, trust_invisible=True).reason is MethodReason.GOOD_TEXT_LAYER


def test_a_short_trusted_layer_over_a_scan_is_taken_as_the_scan_is_its_own():
    layer = TextLayer(text="Chapter seven: the end", invisible_ratio=1.0, image_coverage=1.0)
    assert judge(layer, trust_invisible=True).reason is MethodReason.TRUSTED_OCR_LAYER


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (TextLayer(text=shifted(ENGLISH, 3), invisible_ratio=1.0), MethodReason.NO_WORDS),
        (TextLayer(text="\ufffd" * 500, invisible_ratio=1.0), MethodReason.REPLACEMENT_CHARACTERS),
        (
            TextLayer(text=ENGLISH, unmapped_ratio=1.0, invisible_ratio=1.0),
            MethodReason.UNMAPPED_GLYPHS,
        ),
        (TextLayer(text="p. 7", invisible_ratio=1.0), MethodReason.TOO_FEW_CHARACTERS),
    ],
)
def test_trust_in_an_earlier_ocr_does_not_extend_to_garbage(layer, reason):
    verdict = judge(layer, trust_invisible=True)
    assert not verdict.is_good
    assert verdict.reason is reason


@pytest.mark.parametrize("by", [2, 3, 5, 9, 19, 23])
@pytest.mark.parametrize("language", ["English", "German", "French", "Polish"])
def test_letters_shifted_by_a_broken_font_form_no_words(language, by):
    verdict = judge(TextLayer(text=shifted(LANGUAGES[language], by)))
    assert not verdict.is_good
    assert verdict.reason is MethodReason.NO_WORDS
    assert verdict.word_ratio < MIN_WORDLIKE


def test_glyph_numbers_in_place_of_characters_form_no_words():
    """The order of glyphs in most TrueType fonts: a letter comes out as the one 29 places before it."""
    numbers = "".join(chr(ord(c) - 29) if c.isalpha() else c for c in ENGLISH)
    assert numbers.startswith("7KH WHQDQW")
    assert judge(TextLayer(text=numbers)).reason is MethodReason.NO_WORDS


def test_signs_in_place_of_letters_form_no_words():
    verdict = judge(TextLayer(text="!\"#&';<>?@[]^`{}~" * 20))
    assert verdict.reason is MethodReason.NO_WORDS
    assert verdict.word_ratio is None


def test_how_many_signs_make_gibberish():
    signs = "<>?!;"
    assert judge(TextLayer(text=signs * 19 + "1234")).is_good
    assert not judge(TextLayer(text=signs * 19 + "12345")).is_good
    assert judge(TextLayer(text=(signs + "1234") * 30)).is_good
    assert judge(TextLayer(text=("<>?" + "12") * 30)).is_good
    assert not judge(TextLayer(text=(signs + "123") * 30)).is_good


def test_a_few_signs_are_too_little_to_call_gibberish():
    assert judge(TextLayer(text="<<<>>>???!!!;;;")).is_good


def test_there_must_be_enough_letters_to_judge_words_by():
    letters = "entertainment" * 7
    assert wordlike_ratio(letters[:MIN_PAIRS]) is None
    assert wordlike_ratio(letters[: MIN_PAIRS + 1]) is not None
    assert wordlike_ratio("") is None
    assert wordlike_ratio("a " * 400) is None


def test_pairs_are_counted_within_words_only():
    common, odd = "ther" * 30, "qx" * 60
    assert wordlike_ratio(common) > 0.9
    assert wordlike_ratio(odd) == 0.0
    # 40 words with one common pair each, and 40 with an odd one.
    assert wordlike_ratio("th qx " * 40) == 0.5
    assert wordlike_ratio("th-qx." * 40) == 0.5


def test_only_the_beginning_of_a_page_is_looked_at():
    good = "there " * SAMPLE_CHARACTERS
    assert wordlike_ratio(good[:SAMPLE_CHARACTERS] + "qx" * 5000) == wordlike_ratio(good)


def test_case_and_accents_do_not_matter():
    assert wordlike_ratio(ENGLISH.upper()) == wordlike_ratio(ENGLISH)
    assert wordlike_ratio("élève " * 40) == wordlike_ratio("eleve " * 40)
    assert wordlike_ratio("e\u0301le\u0300ve " * 40) == wordlike_ratio("eleve " * 40)


def test_a_page_of_two_scripts_is_judged_by_its_latin_letters_only_if_they_are_the_most():
    latin, cyrillic = "qxzj" * 30, "жшщы" * 30
    assert wordlike_ratio(latin + " " + cyrillic[: len(latin) // 2]) == 0.0
    assert wordlike_ratio(latin[:90] + " " + cyrillic) is None


def test_the_threshold_itself_is_still_a_page_of_words():
    assert not is_gibberish("", MIN_WORDLIKE)
    assert is_gibberish("", MIN_WORDLIKE - 1e-9)


RATIOS = st.none() | st.floats(0, 1)


@STEADY
@given(
    text=st.text(max_size=400)
    | st.lists(st.sampled_from(["(cid:1)", "\ue000", "word ", "\ufffd", " ", "\x00", "ß", "漢"])).map(
        "".join
    ),
    is_drawn=st.booleans(),
    unmapped=RATIOS,
    invisible=RATIOS,
    coverage=RATIOS,
    paths=st.none() | st.integers(0, 10_000),
    trust=st.booleans(),
)
def test_any_layer_gets_a_verdict_whose_figures_are_shares(
    text, is_drawn, unmapped, invisible, coverage, paths, trust
):
    layer = TextLayer(
        text=text,
        is_drawn=is_drawn,
        unmapped_ratio=unmapped,
        invisible_ratio=invisible,
        image_coverage=coverage,
        path_count=paths,
    )
    verdict = judge(layer, trust_invisible=trust)
    taken = {MethodReason.GOOD_TEXT_LAYER, MethodReason.TRUSTED_OCR_LAYER}
    assert verdict.is_good == (verdict.reason in taken)
    assert trust or verdict.reason is not MethodReason.TRUSTED_OCR_LAYER
    for ratio in (verdict.bad_ratio, verdict.word_ratio):
        assert ratio is None or 0 <= ratio <= 1
    if verdict.is_good:
        assert text.strip()
