"""README fits a page; every relative link of the documents leads to a file and a heading that exist, and every section that
a comment cites ("docs/semantics.md D5") is there.

usage: links_test.py path/to/the/tree
"""
import pathlib
import re
import sys

README_LINES = 150
SOURCES = ("golden", "operators", "dumps", "compare", "tools", "tests")


def anchors(text):
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}


def links(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [to for to in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", to)]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    failed = found = 0
    readme = (root / "README.md").read_text().splitlines()
    if not 0 < len(readme) <= README_LINES:
        failed += 1
        print(f"README.md: {len(readme)} lines, at most {README_LINES} fit")
    for document in [*root.glob("*.md"), *root.glob("docs/**/*.md")]:
        for link in links(document.read_text()):
            found += 1
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists():
                failed += 1
                print(f"{document}: {link}: no such file")
            elif anchor and anchor not in anchors(target.read_text()):
                failed += 1
                print(f"{document}: {link}: no such heading")
    for folder in SOURCES:
        for source in [*root.glob(f"{folder}/**/*.cpp"), *root.glob(f"{folder}/**/*.h")]:
            for page, section in re.findall(r"\b(docs/\w+\.md)[\s/]+([A-Z]\d*)\b", source.read_text()):
                found += 1
                target = root / page
                if not target.exists() or not re.search(f"^#+ {section} ", target.read_text(), re.M):
                    failed += 1
                    print(f"{source}: cites {page} {section}, which is not there")
    print(f"{found} links and citations, README's length, {failed} fail")
    return 0 if found and not failed else 1


sys.exit(main())
