"""README fits a page, and every relative link of the documents leads to a file and a heading that exist.

usage: links_test.py path/to/the/tree
"""
import pathlib
import re
import sys

README_LINES = 150


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
    print(f"{found} links and README's length, {failed} fail")
    return 0 if found and not failed else 1


sys.exit(main())
