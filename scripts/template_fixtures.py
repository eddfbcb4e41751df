#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cgp/model/testdata/templates.json: templates and what Python's jinja2 makes of them, as Hugging Face sets it up.

usage: template_fixtures.py     needs: pip install jinja2
"""
import json
from pathlib import Path

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}"
    "{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
HEADERS = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = "" %}
    {%- set rest = messages %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" + system + "<|eot_id|>" }}
{%- for message in rest %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
"""
TOOLS = """{% macro kind(p) -%}
{{ p.type }}{% if p.enum is defined %}[{{ p.enum | join('|') }}]{% endif %}
{%- endmacro %}
{% set ns = namespace(count=0) %}
{% for tool in tools %}
  {% set f = tool.function %}
{{ f.name }}({% for name, p in f.parameters.properties | items %}{{ name }}: {{ kind(p) }}{{ ", " if not loop.last }}{% endfor %})
  {% set ns.count = ns.count + 1 %}
{% endfor %}
{{ ns.count }} tools
{{ tools | tojson }}
{{ tools[0] | tojson(indent=2) }}
"""
MESSAGES = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Hällo 'x' \"y\""},
            {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "More?"}]
TOOL = [{"type": "function", "function": {"name": "weather", "parameters": {"properties": {
    "city": {"type": "string", "enum": ["Rome", "Öl"]}, "days": {"type": "integer"}}, "required": ["city"]}}}]
CHAT = {"messages": MESSAGES, "bos_token": "<s>", "add_generation_prompt": True, "tools": TOOL}
CASES = [(CHATML, CHAT), (CHATML, dict(CHAT, messages=MESSAGES[1:])), (HEADERS, CHAT), (HEADERS, dict(CHAT, messages=MESSAGES[2:])),
         (TOOLS, CHAT)] + [(t, {"x": 3, "s": "Hello World", "l": [3, 1, 2], "d": {"b": 1, "a": [True, None, 1.5, "q'\n"]},
                                "rows": [{"k": "b", "v": 2}, {"k": "a", "v": 1}, {"k": "b", "v": 3}]}) for t in [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a \n {%- if true -%} \n b {%+ endif %}\n c", "  {{ x }}\n  {# note #}\n|", "a{{- x -}} b",
    "{% raw %}{{ x }}{% endraw %}!", "{{ 'a' 'b' }}{{ \"\\n\\t\\u20ac\\\\\" }}", "{{ {'a': {'b': 1}} }}{{ [1, 'x', none, true, 2.0] }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1e3 if false }} {{ 3 * 'ab' if false else 'ab' * 3 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'n' ~ 1 ~ 2 }} {{ -x | abs }} {{ not x == 3 }} {{ x is odd and x is not even }}",
    "{{ 1 if x > 2 else 2 }}{{ 'y' if x == 9 }}|{{ undefined_name }}|{{ d.zzz }}|{{ d['b'] }}|{{ l[-1] }}|{{ l[9] }}",
    "{{ s[1:4] }} {{ s[::-1] }} {{ s[-3:] }} {{ l[:2] }} {{ l[::2] }} {{ s[5:1] }} {{ l[-2::-1] }}",
    "{{ 'lo' in s }} {{ 3 in l }} {{ 'b' in d }} {{ 9 not in l }} {{ none is none }} {{ d is mapping }} {{ s is string }} {{ l is sequence }}",
    "{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for a, b in d | items %}{{ a }}={{ b }};{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(5, 0, -2) | list }}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }}{{ loop.revindex0 }}{{ loop.changed(i > 2) }} {% endfor %}",
    "{% set y = 1 %}{% for i in l %}{% set y = i %}{% endfor %}{{ y }}{% set n = namespace(v=0) %}{% for i in l %}{% set n.v = n.v + i %}{% endfor %}{{ n.v }}",
    "{% set t %}<{{ x }}>{% endset %}{{ t }}{% set u | upper %}abc{% endset %}{{ u }}{% set a, b = 1, 2 %}{{ a + b }}",
    "{% macro m(a, b='z') %}[{{ a }}{{ b }}{{ caller() if caller is defined }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m(b=3, a=4) }}{% call m('c') %}in{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}{% filter upper %}abc{{ s }}{% endfilter %}",
    "{{ s.lower() }} {{ s.split() }} {{ s.split('o', 1) }} {{ '  a '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ s.startswith('He') }} {{ s.replace('l', 'L') }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\nb'.splitlines() }} {{ s.find('W') }} {{ s.count('l') }} {{ '-'.join(['a', 'b']) }} {{ '12'.isdigit() }} {{ '{} {1} {n}'.format('p', 'q', n=2) if false else '{0}{n}'.format(7, n=2) }}",
    "{{ d.get('b') }} {{ d.get('q', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list | length }}",
    "{{ s | length }} {{ s | upper }} {{ 'hello wORLD-x' | title }} {{ 'hELLO' | capitalize }} {{ l | sort }} {{ l | sort(reverse=true) }} {{ l | max }} {{ l | min }} {{ l | sum }}",
    "{{ l | first }} {{ l | last }} {{ l | reverse | list }} {{ s | reverse }} {{ [1, 1, 2] | unique | list }} {{ zz | default('d') }} {{ '' | default('e', true) }} {{ l | join('-') }}",
    "{{ rows | map(attribute='v') | list }} {{ rows | selectattr('k', 'equalto', 'b') | map(attribute='v') | sum }} {{ rows | rejectattr('k', 'equalto', 'b') | list }} {{ rows | sort(attribute='v') | map(attribute='k') | join }}",
    "{{ [1, 2, 3] | select('odd') | list }} {{ ['a', 'B'] | map('upper') | list }} {{ [0, 1] | select | list }} {{ rows | groupby('k') | length if false else 1 }} {{ d | dictsort | first | first }}",
    "{{ '3' | int + 1 }} {{ 'q' | int(7) }} {{ '2.5' | float }} {{ 2.567 | round(1) }} {{ 5 | string + 'x' }} {{ -3 | abs }} {{ '%s-%03d-%.2f' | format('a', 7, 1.5) }} {{ 1.0 }} {{ 1e20 if false }}",
    "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ '<&>\"' | e }}|{{ d | tojson }}|{{ d | tojson(indent=4) }}|{{ 'ä\"\n' | tojson }}",
    "{{ true and 'a' or 'b' }} {{ 0 or none }} {{ [] and 1 }} {{ (1 == 1) != (2 == 3) }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ [1] + [2] }}",
    "{{ undefined_name.attribute }}", "{{ 1 + 'a' }}", "{{ nothing() }}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{{ s | nofilter }}", "{% if %}", "{{ 1", "{% for x in l %}",
    "{{ x is notest }}", "{% endif %}", "{{ }}", "{{ l.append(1) }}", "{{ 'a' < 1 }}"]]


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def raise_exception(text):
        raise jinja2.exceptions.TemplateError(text)

    env.globals["raise_exception"] = raise_exception
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    out = []
    for template, variables in CASES:
        case = {"template": template, "variables": variables}
        try:
            case["text"] = env.from_string(template).render(**variables)
        except Exception:  # ours refuses as well; its words differ
            case["text"] = None
        out.append(case)
    path = Path(__file__).resolve().parent.parent / "cgp/model/testdata/templates.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(len(out), sum(c["text"] is None for c in out), [c["template"] for c in out if c["text"] is None])


main()
