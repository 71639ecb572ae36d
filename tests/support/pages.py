"""Pages of reports as tests read them, and texts that mean something where they are not escaped."""

import html.parser

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %}",
    "&lt;b&gt;&#x3c;i&#x3e;",
    "\u202eevil\u202c \u200b\u2066x\u2069",
    "\x1b[31mred\x1b[0m \x07\x00",
    "[bold]markup[/bold] :smile:",
    "javascript:alert(1) data:text/html,x",
    "</style><style>*{display:none}</style>",
    "line\nbreak\ttab\u2028",
)


class Reader(html.parser.HTMLParser):
    """Elements in order, with a stack that must come out even."""

    VOID = frozenset({"meta", "img", "br", "link", "hr", "input"})

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.stack, self.elements, self.text = [], [], []
        self.feed(page)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]
