"""The public headers, read: what each of them declares."""
import re

from support import ROOT

HEADERS = sorted((ROOT / "include" / "manta").glob("*.h"))


def bare(text):
    """A header's text without comments and with macros that go on taken for one line."""
    return re.sub(r"\\\n", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


def macros(text):
    """Names that a header defines, its guard left out."""
    return [n for n in re.findall(r"^\s*#\s*define\s+(\w+)", bare(text), re.M) if not re.fullmatch(r"MANTA_\w*_?H", n)]


def plain(text):
    """What is left of a header when the preprocessor's lines are gone."""
    return re.sub(r"^\s*#.*$", "", bare(text), flags=re.M)


def enums(text):
    """(type or None, its constants) of each enum."""
    return [(m[1], re.findall(r"\b(MANTA_\w+)\s*(?:=[^,}]*)?(?:,|$)", m[2].strip() + ","))
            for m in re.finditer(r"\benum\s+(\w+)?\s*\{(.*?)\}", plain(text), re.S)]


def tags(text):
    """Struct, union and enum tags that are defined, or made opaque types, here."""
    found = re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", plain(text))
    return set(found) | set(re.findall(r"\btypedef\s+(?:struct|union|enum)\s+(\w+)\s+\w+\s*;", plain(text)))


def types(text):
    """Names that a typedef gives."""
    text, found = plain(text), set()
    while True:             # bodies go from the inside out, so that a typedef is one line
        shorter = re.sub(r"\{[^{}]*\}", " ", text)
        if shorter == text:
            break
        text = shorter
    for m in re.finditer(r"\btypedef\s+([^;]*);", text):
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", m[1])
        found.add(pointer[1] if pointer else re.findall(r"(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*$", m[1])[0])
    return found


def functions(text):
    """(name, whole declaration) of each exported or inline function."""
    text = plain(text)
    exported = [(m[2], m[0]) for m in
                re.finditer(r"\bMANTA_API\s+([^;{}()]*?)\b(manta_\w+)\s*\((?:[^;]*?)\)\s*(?:MANTA_\w+(?:\([^)]*\))?\s*)*;",
                            text)]
    inline = [(m[1], m[0]) for m in re.finditer(r"\bstatic\s+inline\s+[^;{}()]*?\b(manta_\w+)\s*\([^{;]*\)", text)]
    return exported + inline
