// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Jinja that models ship as their chat templates, as Hugging Face runs it: blocks are trimmed (trim_blocks,
// lstrip_blocks), break and continue are there, nothing can be changed but namespaces.
//
// There: if, for (with if and else), set, macro, call, filter, raw, break, continue, generation; all operators; the
// filters, tests and methods of template_builtins.cpp; range, namespace, dict, raise_exception, strftime_now, joiner.
// Not there: include, import, extends, block, autoescape and whatever reads files or calls out.
//
// A template comes with a model file and is not trusted: it may take 2 million steps, 64 MiB of strings in all and a depth
// of 100. Errors name the template's line. A template that calls raise_exception(text) ends with ArgumentError: text.
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "cgp/model/template/value.h"

namespace cgp::model {

namespace jinja {
struct Program;
}

class ChatTemplate {
 public:
  /// Throws ParseError for what is no Jinja, Unsupported for Jinja that is not here. `name` stands in errors.
  explicit ChatTemplate(std::string_view source, std::string name = "chat template");
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `variables` is a dict: messages, tools, add_generation_prompt, bos_token, eos_token and what else the template
  /// wants. `now` is what strftime_now prints, in local time.
  std::string render(const Value& variables, std::time_t now = std::time(nullptr)) const;

 private:
  std::unique_ptr<jinja::Program> program_;
};

}  // namespace cgp::model
