"""A hundred names and texts of an attacker who wants to run code in a visitor's browser."""

from itertools import islice, product
from typing import Final

_CODE: Final = "window.hacked=1"
_MARKUP: Final = (
    f"<script>{_CODE}</script>",
    f"</script><script>{_CODE}</script>",
    f"<img src=x onerror={_CODE}>",
    f"<svg onload={_CODE}>",
    f"<svg><script>{_CODE}</script></svg>",
    f"<iframe srcdoc='<script>parent.{_CODE}</script>'></iframe>",
    f"<body onload={_CODE}>",
    f"<details open ontoggle={_CODE}>x</details>",
    f"<math><mtext></p><style><img src=x onerror={_CODE}>",
    f"<a href=javascript:{_CODE}>x</a>",
    f"<input autofocus onfocus={_CODE}>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=http://evil.example/a.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<base href=http://evil.example/>",
    "<form action=http://evil.example/><button>x</button></form>",
    f"javascript:{_CODE}",
    f"data:text/html,<script>{_CODE}</script>",
    f"{{{{constructor.constructor('{_CODE}')()}}}}",
    f"${{{_CODE}}}",
    "-->",
    "]]>",
    "\u202egnp.exe",
    "\x1b[2J\x1b]0;owned\x07",
    "null",
    "__proto__",
)
_AROUND: Final = ("{}", '"{}', "'>{}", "`{}`")

#: Bodies, properties, client ids and groups, which must only be displayed.
TEXTS: Final = tuple(islice((around.format(text) for around, text in product(_AROUND, _MARKUP)), 100))
#: Names of topics are letters, digits, - _ % and |, so that these are the worst.
NAMES: Final = ("__proto__", "constructor", "%3Cscript%3E", "javascript|alert", "--", "%2e%2e%2f")
