// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/completion.h"

#include <algorithm>

#include "cgp/base/text.h"

namespace cgp::cli {
namespace {

using text::cat;

/// What may stand for a value.
struct Values {
  std::vector<std::string> words;
  bool files = false, kernels = false;
};

Values values_of(const CLI::Option& o) {
  const std::string type = o.get_type_name();  // "TEXT", "INT:POSITIVE", "TEXT:{auto,always,never}"
  Values v;
  const auto open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    const std::string all = type.substr(open + 1, close - open - 1);
    for (const auto word : text::split(all, ',')) v.words.emplace_back(word);
    return v;
  }
  v.files = type.rfind("TEXT", 0) == 0;
  const std::string name = o.get_name();
  v.kernels = o.get_positional() && (name == "KERNEL" || name == "TARGET" || name == "WHAT");
  return v;
}

bool shown(const CLI::Option& o) { return !o.get_group().empty(); }
bool shown(const CLI::App& a) { return !a.get_group().empty() && !a.get_disabled(); }

std::vector<std::string> names_of(const CLI::Option& o) {
  std::vector<std::string> out;
  for (const auto& name : o.get_lnames()) out.push_back("--" + name);
  for (const auto& name : o.get_snames()) out.push_back("-" + name);
  return out;
}

std::string quoted(const std::vector<std::string>& words) {
  std::string out = "'";
  for (const char c : text::join(words, " "))
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  return out + "'";
}

/// The parts of the script, a line for each command or option that has something to say.
struct Script {
  std::string commands, options, values, words;
};

std::string assigned(const Values& v) {
  std::string out;
  if (!v.words.empty()) out += cat(" words=", quoted(v.words));
  if (v.kernels) out += " words+=\" $kernels\"";
  if (v.files) out += " files=1";
  return out.empty() ? " :" : out;
}

void describe(const CLI::App& app, const std::string& path, Script& s) {
  std::vector<std::string> options, words;
  if (path == "cgp") words = {"help"};  // which stands before a command
  Values positional;
  for (const CLI::Option* o : app.get_options()) {
    if (!shown(*o)) continue;
    const auto names = names_of(*o);
    options.insert(options.end(), names.begin(), names.end());
    const Values v = values_of(*o);
    if (o->get_positional()) {
      positional.words.insert(positional.words.end(), v.words.begin(), v.words.end());
      positional.files |= v.files, positional.kernels |= v.kernels;
    }
    if (names.empty() || o->get_items_expected_max() == 0) continue;  // a flag
    std::vector<std::string> patterns;
    for (const auto& name : names) patterns.push_back(cat("\"", path, " ", name, "\""));
    s.values += cat("    ", text::join(patterns, "|"), ")", assigned(v), " ;;\n");
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!shown(*sub)) continue;
    const std::string inner = cat(path, " ", sub->get_name());
    words.push_back(sub->get_name());
    s.commands += cat(s.commands.empty() ? "" : "|", "\"", inner, "\"");
    describe(*sub, inner, s);
  }
  positional.words.insert(positional.words.end(), words.begin(), words.end());
  s.options += cat("    \"", path, "\") words=", quoted(options), " ;;\n");
  s.words += cat("    \"", path, "\")", assigned(positional), " ;;\n");
}

}  // namespace

std::string bash_completion(const CLI::App& app, const std::vector<std::string>& kernels) {
  Script s;
  describe(app, "cgp", s);
  return cat(R"(# Completion of cgp in bash. In ~/.bashrc: source <(cgp completion bash)
_cgp() {
  local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} path=cgp words= files= plain= i
  local kernels=)",
             quoted(kernels), R"(
  COMPREPLY=()
  # bash cuts --option=value into three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $option == = ]]; then
    option=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      path=--
      break
    fi
    case "$path ${COMP_WORDS[i]}" in
    )",
             s.commands, R"() path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path $option" in
)",
             s.values, R"(    "-- "*) files=1 ;;
    *) plain=1 ;;
  esac
  if [[ $plain && $word == -* ]]; then
    case "$path" in
)",
             s.options, R"(    esac
  elif [[ $plain ]]; then
    case "$path" in
)",
             s.words, R"(    esac
  fi
  [[ $words ]] && mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [[ $files ]]; then
    local -a found
    mapfile -t found < <(compgen -f -- "$word")
    COMPREPLY+=("${found[@]}")
    compopt -o filenames 2>/dev/null
  fi
  return 0
}
complete -F _cgp cgp
)");
}

}  // namespace cgp::cli
