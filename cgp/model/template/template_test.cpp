// SPDX-License-Identifier: Apache-2.0
// Templates against Python's jinja2 (scripts/template_fixtures.py), their limits, and damaged ones.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/model/template/chat_template.h"

namespace cgp::model {
namespace {

std::string error_of(std::string_view source, const Value& variables = ValueDict{}) {
  try {
    ChatTemplate(source, "t").render(variables);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ChatTemplate, TextIsThatOfJinja2) {
  const std::string path = CGP_TESTDATA "/templates.json";
  const Value cases = Value::from_json(read_file(path), path);
  ASSERT_GT(cases.list()->size(), 40u);
  for (const Value& c : *cases.list()) {
    const std::string& source = c.find("template")->string();
    const Value& want = *c.find("text");
    if (want.is_none()) {
      EXPECT_NE(error_of(source, *c.find("variables")), "") << source;
      continue;
    }
    try {
      EXPECT_EQ(ChatTemplate(source).render(*c.find("variables")), want.string()) << source;
    } catch (const Error& e) {
      ADD_FAILURE() << source << "\n" << e.what();
    }
  }
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_NE(error_of("\n\n{{ 1 + 'a' }}").find("t, line 3"), std::string::npos);
  EXPECT_NE(error_of("\n{% if x %}\n").find("endif"), std::string::npos);
  EXPECT_NE(error_of("{{ x.y.z }}").find("'x' is undefined"), std::string::npos);
  EXPECT_THROW(ChatTemplate("{% include 'x' %}"), Unsupported);
  EXPECT_THROW(ChatTemplate("{{ f(*a) }}"), Unsupported);
  EXPECT_NE(error_of("{{ raise_exception('roles must alternate') }}").find("roles must alternate"),
            std::string::npos);
}

TEST(ChatTemplate, TheDateIsTheCallers) {
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%Y') }}").render(ValueDict{}, 1'700'000'000), "2023");
}

TEST(ChatTemplate, WhatATemplateMayTakeIsBounded) {
  auto start = std::chrono::steady_clock::now();
  for (const char* hostile :
       {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(999999999999) }}", "{{ 'a' * 99999999999 }}",
        "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 2 ** 999999999999 }}",
        "{{ 'aaaa'.replace('a', 'b' * 9999999) * 9 }}",
        "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
        "{{ '%999999999s' % 'a' }}",
        "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"})
    EXPECT_NE(error_of(hostile), "") << hostile;
  EXPECT_NE(error_of("{{ " + std::string(100000, '(') + "1"), "");
  EXPECT_NE(error_of("{{ " + std::string(100000, '-') + "1 }}"), "");
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if 1 %}";
  EXPECT_NE(error_of(nested), "");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 60);
  EXPECT_EQ(error_of("{% set n = namespace() %}{% set n.self = n %}{{ n }}"), "") << "a circle is let go of";
}

TEST(ChatTemplateMutation, DamagedTemplatesEndInTextOrErrors) {
  const std::string path = CGP_TESTDATA "/templates.json";
  const Value cases = Value::from_json(read_file(path), path);
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int rounds = wanted ? std::atoi(wanted) / 50 : 200;
  SplitMix64 random(9);
  int texts = 0, errors = 0;
  for (const Value& c : *cases.list())
    for (int i = 0; i < rounds; ++i) {
      std::string source = c.find("template")->string();
      for (std::uint64_t n = 1 + random.next() % 3; n > 0 && !source.empty(); --n) {
        std::size_t at = random.next() % source.size();
        switch (random.next() % 4) {
          case 0:
            source.erase(at, 1 + random.next() % 8);
            break;
          case 1:
            source.insert(at, source.substr(random.next() % source.size(), random.next() % 32));
            break;
          case 2:
            source[at] = "{}%()[]|.,'\"-+*~=<>! ax1\n"[random.next() % 25];
            break;
          default:
            source[at] = char(random.next());
        }
      }
      try {
        ChatTemplate(source).render(*c.find("variables"));
        ++texts;
      } catch (const Error&) {
        ++errors;
      }
    }
  EXPECT_GT(texts, errors / 20);
  EXPECT_GT(errors, texts / 20);
}

TEST(Value, JsonIsReadAndWritten) {
  const char* text = R"({"a": [1, -2.5, true, null, "x\"\n€😀"], "b": {}})";
  EXPECT_EQ(Value::from_json(text, "x").json(), "{\"a\": [1, -2.5, true, null, \"x\\\"\\n€😀\"], \"b\": {}}");
  EXPECT_EQ(Value::from_json("\"\\ud83d\\ude00\"", "x").string(), "😀");
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\\q\"", "\"a", "+1", "[1 2]"})
    EXPECT_THROW(Value::from_json(bad, "x"), ParseError) << bad;
  EXPECT_THROW(Value::from_json(std::string(1000, '['), "x"), ParseError);
}

}  // namespace
}  // namespace cgp::model
