"""Documents: each folder has its page, links lead somewhere, man pages are well-formed."""
import re
import unittest

from support import ROOT, run, tracked

PAGE = 60       # lines of a folder's README


class Documents(unittest.TestCase):
    def test_each_folder_has_a_page(self):
        wrong = []
        for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()):
            readme = folder / "README.md"
            lines = len(readme.read_text().splitlines()) if readme.is_file() else 0
            if not 3 < lines <= PAGE:
                wrong.append(f"src/{folder.name}/README.md has {lines} lines; a page is 4 to {PAGE}")
        self.assertEqual(wrong, [])

    def test_a_page_names_files_that_exist(self):
        known = {p.name for f in ("src", "include", "tests") for p in (ROOT / f).rglob("*.[ch]")}
        wrong = [f"{readme.relative_to(ROOT)}: {name}" for readme in sorted((ROOT / "src").glob("*/README.md"))
                 for name in re.findall(r"`(?:[\w/]*/)?(\w+\.[ch])`", readme.read_text()) if name not in known]
        self.assertEqual(wrong, [])

    def test_links_lead_somewhere(self):
        wrong = []
        for document in tracked("*.md"):
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
                if "://" not in target and not (document.parent / target).exists():
                    wrong.append(f"{document.relative_to(ROOT)}: {target}")
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


if __name__ == "__main__":
    unittest.main()
