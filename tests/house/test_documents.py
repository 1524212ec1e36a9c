"""Documents: each folder has its page, links lead somewhere, man pages are well-formed."""
import importlib.util
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree

from support import BUILD, ROOT, run, tracked
import check_includes

PAGE = 60       # lines of a folder's README


def arguments(text):
    """How many there are between the brackets of a call, or of its declaration."""
    depth, n = 0, 0 if text.strip() in ("", "void") else 1
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        n += c == "," and depth == 0
    return n


def calls(text):
    """(name, what is between its brackets) of each call of the library."""
    for m in re.finditer(r"\b(manta_\w+)\(", text):
        depth, i = 1, m.end()
        while i < len(text) and depth:
            depth += (text[i] in "([{") - (text[i] in ")]}")
            i += 1
        if not depth:
            yield m[1], text[m.end():i - 1]


def links(text):
    """Targets of a page's links and pictures, in Markdown and in HTML, without those to other hosts."""
    found = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'\b(?:src|srcset|href)="([^"]+)"', text)
    return [target for target in found if "://" not in target]


def anchors(text):
    """What the headings of a page are called in links to them."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ +(.*?) *$", text, re.M)}


class Documents(unittest.TestCase):
    def test_each_folder_has_a_page(self):
        wrong = []
        rooms = [ROOT / "src" / folder / room for folder, rooms in check_includes.ROOMS.items() for room in rooms if room]
        for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()) + rooms:
            readme = folder / "README.md"
            lines = len(readme.read_text().splitlines()) if readme.is_file() else 0
            if not 3 < lines <= PAGE:
                wrong.append(f"{readme.relative_to(ROOT)} has {lines} lines; a page is 4 to {PAGE}")
        self.assertEqual(wrong, [])

    def test_a_page_names_files_that_exist(self):
        known = {p.name for f in ("src", "include", "tests") for p in (ROOT / f).rglob("*.[ch]")}
        wrong = [f"{readme.relative_to(ROOT)}: {name}" for readme in sorted((ROOT / "src").rglob("README.md"))
                 for name in re.findall(r"`(?:[\w/]*/)?(\w+\.[ch])`", readme.read_text()) if name not in known]
        self.assertEqual(wrong, [])

    def test_the_page_of_a_room_is_complete(self):
        """It names each file of the room, and the rooms that check_includes.py lets it see."""
        wrong = []
        for folder, rooms in check_includes.ROOMS.items():
            for room, sees in rooms.items():
                here = ROOT / "src" / folder / room
                text = (here / "README.md").read_text()
                names = check_includes.sources(here) if room else here.glob("*.c")
                wrong += [f"src/{folder}/{room}/README.md says nothing of {p.name}" for p in names
                          if f"`{p.name}`" not in text and f"`{p.stem}.*`" not in text]
                line = f"May see of `{folder}/`: {', '.join(f'`{s}/`' for s in sees) or 'no other room'}.\n"
                if room and line not in text:
                    wrong.append(f"src/{folder}/{room}/README.md lacks: {line.strip()}")
                if room and f"]({room}/README.md)" not in (ROOT / "src" / folder / "README.md").read_text():
                    wrong.append(f"src/{folder}/README.md has no row for {room}/")
        self.assertEqual(wrong, [])

    def test_links_lead_somewhere(self):
        """To a file or folder of the repository and, behind a #, to a heading that is there."""
        files = set(tracked())
        known = files | {folder for path in files for folder in path.parents}
        seen, wrong = 0, []
        for document in tracked("*.md"):
            for link in links(document.read_text()):
                target, _, heading = link.partition("#")
                path = (document.parent / target).resolve() if target else document
                seen += 1
                if path not in known:
                    wrong.append(f"{document.relative_to(ROOT)}: {link}: no such file")
                elif heading and (path.suffix != ".md" or heading not in anchors(path.read_text())):
                    wrong.append(f"{document.relative_to(ROOT)}: {link}: no such heading")
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 100)

    def test_the_index_has_every_page(self):
        index = ROOT / "docs" / "README.md"
        linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index.read_text())}
        pages = set(tracked("docs/*.md")) - {index}
        self.assertGreater(len(pages), 15)
        self.assertEqual(sorted(str(p.relative_to(ROOT)) for p in pages - linked), [])

    def test_the_glossary_names_files_that_exist(self):
        known = {p.name for f in ("src", "include") for p in (ROOT / f).rglob("*.[ch]")}
        names = re.findall(r"`(?:\w+/)*(\w+\.[ch])`", (ROOT / "docs" / "glossary.md").read_text())
        self.assertGreater(len(names), 15)
        self.assertEqual([name for name in names if name not in known], [])

    def test_the_lines_of_c_compile(self):
        """Those of the first page, with what they say is there besides."""
        blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        self.assertTrue(blocks)
        for block in blocks:
            program = ("#include <manta.h>\n#include <stdio.h>\nvoid f(manta_compile compile, manta_session *session, "
                       "manta_dataset *data);\nvoid f(manta_compile compile, manta_session *session, manta_dataset *data)\n{\n"
                       + block + "}\n")
            done = run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", ROOT / "include", "-x", "c", "-",
                       text_in=program)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_calls_of_the_library_are_as_the_headers_say(self):
        """Names, numbers of arguments and fields, in all that documents show of C."""
        head = re.sub(r"/\*.*?\*/", " ", "\n".join(p.read_text() for p in sorted((ROOT / "include").rglob("*.h"))),
                      flags=re.S)
        known = set(re.findall(r"\bmanta_\w+", head))
        takes = {m[1]: arguments(m[2]) for m in
                 re.finditer(r"MANTA_API\s+[^;{}]*?\b(manta_\w+)\s*\(([^;]*?)\)\s*(?:MANTA_\w+[^;]*)?;", head)
                 if "..." not in m[2]}
        fields = {m[1]: set(re.findall(r"\w+", m[2])) for m in
                  re.finditer(r"typedef struct (manta_\w+) \{(.*?)\n\} \1;", head, re.S)}
        self.assertGreater(len(takes), 400)
        wrong = []
        for document in tracked("*.md"):
            text = document.read_text()
            if document.name == "CHANGELOG.md":     # the first column of its tables has the names that were
                text = re.sub(r"^\|[^|\n]*\|", "|", text, flags=re.M)
            wrong += [f"{document.name}: {name}: no such name"
                      for name in sorted(set(re.findall(r"(?<![\w/.-])manta_[a-z]\w*[a-z0-9](?![\w*])", text)) - known)]
            for span in re.findall(r"`([^`\n]+)`", text) + re.findall(r"```c?\n(.*?)```", text, re.S):
                wrong += [f"{document.name}: {name}({given}): the header has {takes[name]} arguments"
                          for name, given in calls(span)
                          if name in takes and given.strip() and "..." not in given and "…" not in given
                          and arguments(given) != takes[name]]
            for name, given in re.findall(r"\((manta_\w+)(?:\[\])?\)\{+(\.[^`]*?)\}", text):
                wrong += [f"{document.name}: {name} has no .{field}" for field in re.findall(r"[{,]\s*\.(\w+)", "," + given)
                          if name in fields and field not in fields[name]]
        self.assertEqual(wrong, [])

    def test_what_was_renamed_is_gone(self):
        """The left column of the tables of CHANGELOG.md: no header, no source, no document has these names."""
        old = {name for cell in re.findall(r"^\|([^|\n]*)\|", (ROOT / "CHANGELOG.md").read_text(), re.M)
               for name in re.findall(r"`((?:manta|MANTA)_\w+)(?:\([^`]*\))?`(?! \()", cell)}
        self.assertGreater(len(old), 5)
        wrong = []
        for path in tracked("*.[ch]", "*.inc", "*.md", "*.1"):
            if path.name != "CHANGELOG.md" and "golden" not in path.parts:
                wrong += [f"{path.relative_to(ROOT)}: {name}"
                          for name in sorted(set(re.findall(r"\b(?:manta|MANTA)_\w+", path.read_text())) & old)]
        self.assertEqual(wrong, [])

    def test_each_call_of_theirs_has_its_row(self):
        """their_calls.txt: what the programs call that people come from."""
        pages = "\n".join((ROOT / "docs" / f"from-{name}.md").read_text() for name in ("ray", "keras", "pytorch"))
        names = (ROOT / "tests" / "house" / "their_calls.txt").read_text().split()
        self.assertGreater(len(names), 150)
        self.assertEqual([n for n in names if not re.search(r"\b" + re.escape(n) + (r"\b" if n[-1].isalnum() else ""), pages)],
                         [])

    def test_each_example_has_a_page(self):
        pages = "\n".join(p.read_text() for p in (ROOT / "examples").rglob("README.md"))
        wrong = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "examples").rglob("*.c")) if p.stem not in pages]
        self.assertEqual(wrong, [])

    def test_man_pages_have_no_warnings(self):
        for page in sorted((ROOT / "docs" / "man").glob("*.1")):
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page)
            self.assertEqual((page.name, done.returncode, done.stderr), (page.name, 0, ""))

    def test_text_files_end_well(self):
        wrong = []
        for path in tracked("*.[ch]", "*.md", "*.py", "*.sh", "*.txt", "*.cmake", "*.json", "check", "quickstart"):
            data = path.read_bytes()
            if not data or "corpus" in path.parts or "golden" in path.parts:
                continue
            if not data.endswith(b"\n") or data.endswith(b"\n\n"):
                wrong.append(f"{path.relative_to(ROOT)}: does not end in one newline")
            if re.search(rb"[ \t]+\n|\r", data):
                wrong.append(f"{path.relative_to(ROOT)}: blanks at the end of a line, or a carriage return")
        self.assertEqual(wrong, [])


class Pictures(unittest.TestCase):
    """docs/pictures: whole, alone, and the same on light and on dark ground."""
    FOLDER = ROOT / "docs" / "pictures"

    def test_each_stands_alone(self):
        pictures = tracked("docs/pictures/*.svg")
        self.assertGreaterEqual(len(pictures), 4)
        for picture in pictures:
            text = picture.read_text()
            xml.etree.ElementTree.fromstring(text)
            outside = re.findall(r"@import|href=|url\(|<script|https?://(?!www\.w3\.org/2000/svg\")", text)
            self.assertEqual((picture.name, outside), (picture.name, []))

    def test_light_and_dark_differ_in_colours_alone(self):
        for light in tracked("docs/pictures/*-light.svg"):
            dark = light.with_name(light.name.replace("-light", "-dark"))
            texts = [re.sub(r"#[0-9a-f]{6}\b", "#", path.read_text()) for path in (light, dark)]
            self.assertEqual(texts[0], texts[1], light.name)
            self.assertNotEqual(light.read_text(), dark.read_text())

    def test_the_kills_are_those_of_the_record(self):
        spec = importlib.util.spec_from_file_location("kills", self.FOLDER / "kills.py")
        kills = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kills)
        with tempfile.TemporaryDirectory() as folder:
            kills.draw(BUILD / "manta", folder)
            for drawn in sorted(pathlib.Path(folder).iterdir()):
                self.assertEqual(drawn.read_text(), (self.FOLDER / drawn.name).read_text(), drawn.name)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 2)


if __name__ == "__main__":
    unittest.main()
