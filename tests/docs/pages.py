"""Pages of documentation: Markdown read as blocks of code, links and headings. The checks in this folder share it.

Comments before a block of code tell the checks how to treat it:

  <!-- not run: REASON -->   check the options of the commands, but do not run them
  <!-- before: COMMANDS -->  run these shell commands first; the reader does not see them
  <!-- file: NAME -->        write the block to this file before the commands of the page run
  <!-- c: DECLARATIONS -->   declare these C names outside the function that holds the statements of the block

A C block whose first line is a comment with a file name, /* mytasks.c */, needs no `file` comment."""
import glob
import os
import re

ROOTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "examples/**/*.md", "proto/**/*.md", "tests/**/*.md"]
RUN = re.compile(r"README\.md|docs/.*")  # pages whose commands run
MARKS = {"not run": ("sh",), "before": ("sh",), "file": None, "c": ("c",)}  # languages of the block; None: all


class Block:
    """A fenced block of code. line: number of the first line of code; marks: name -> text of the comments before it"""

    def __init__(self, page, line, language, marks):
        self.page, self.line, self.language, self.marks, self.lines = page, line, language, marks, []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def file(self):
        """Name of the file that the block is written to, or None"""
        match = self.language == "c" and self.lines and re.fullmatch(r"/\* (\S+\.[ch]) \*/", self.lines[0])
        return self.marks.get("file") or (match and match[1]) or None


class Page:
    """A page: name relative to the root, faults of its form, blocks of code, and `prose`, its lines with code left blank"""

    def __init__(self, name):
        self.name, self.faults, self.blocks, self.prose = name, [], [], []
        with open(name, encoding="utf-8") as file:
            self.parse(file.read().split("\n"))

    def parse(self, lines):
        marks, block, indent, comment = {}, None, 0, None
        for number, line in enumerate(lines, 1):
            fence = re.match(r"( *)```(\w*)\s*$", line)
            text = ""
            if block is not None and fence:
                block = None
            elif block is not None:
                block.lines.append(line[min(indent, len(line) - len(line.lstrip())):])
            elif fence:
                indent, block = len(fence[1]), Block(self.name, number + 1, fence[2], marks)
                self.blocks.append(block)
                self.check_marks(block)
                marks = {}
            elif comment is not None or line.lstrip().startswith("<!--"):
                comment = (comment or "") + line.strip() + "\n"
                if "-->" in line:
                    match = re.fullmatch(r"<!--\s*([\w ]+?):\s*(.*?)\s*-->\s*", comment, re.S)
                    marks[match[1] if match else comment.strip()] = match[2] if match else ""
                    comment = None
            elif line.strip():
                if set(marks) & set(MARKS):
                    self.faults.append(f"{self.name}:{number}: no block of code follows the comment '{min(marks)}'")
                marks, text = {}, line
                if re.match(r"    (\$ )?gradpool ", line) and RUN.fullmatch(self.name):
                    self.faults.append(f"{self.name}:{number}: an indented command; put it into a ```sh block")
            self.prose.append(text)
        if block is not None:
            self.faults.append(f"{self.name}:{block.line - 1}: no ``` ends this block")

    def check_marks(self, block):
        for mark, text in block.marks.items():
            where = f"{self.name}:{block.line - 1}"
            if mark not in MARKS:
                self.faults.append(f"{where}: unknown comment '{mark}' before a block; known: {', '.join(MARKS)}")
            elif not text:
                self.faults.append(f"{where}: the comment '{mark}:' before the block is empty")
            elif MARKS[mark] and block.language not in MARKS[mark]:
                self.faults.append(f"{where}: '{mark}' stands before a {block.language or 'plain'} block")

    def links(self):
        """(line number, target) of each link and image"""
        for number, line in enumerate(self.prose, 1):
            line = re.sub(r"`[^`]*`", "", line)
            for match in re.finditer(r"\]\(([^()\s]+)(?: \"[^\"]*\")?\)|\b(?:href|src|srcset)=\"([^\"]+)\"|^\[[^\]]+\]:\s*(\S+)", line):
                yield number, match[1] or match[2] or match[3]

    def anchors(self):
        """anchor -> line number, as GitHub makes them from headings"""
        anchors = {}
        for number, line in enumerate(self.prose, 1):
            heading = re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
            if heading:
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
                slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
                count, name = 0, slug
                while name in anchors:
                    count += 1
                    name = f"{slug}-{count}"
                anchors[name] = number
            for match in re.finditer(r"<a (?:id|name)=\"([^\"]+)\"", line):
                anchors[match[1]] = number
        return anchors


def all_pages():
    """All pages of the current directory: name -> Page"""
    names = sorted({name for root in ROOTS for name in glob.glob(root, recursive=True)})
    return {name: Page(name) for name in names}


def resolve(page, target):
    """(path from the root, anchor) of a relative link target of a page; None for an address on the web"""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    if not path:
        return page, anchor
    path = os.path.normpath(os.path.join(os.path.dirname(page), path))
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "README.md")):
        path = os.path.normpath(os.path.join(path, "README.md"))
    return path, anchor
