// SPDX-License-Identifier: Apache-2.0
#pragma once
// What filters and methods of strings have in common, as Python does it.
#include <string>
#include <string_view>
#include <vector>

#include "cgp/model/template/template_eval.h"

namespace cgp::model::jinja {

using Arguments = std::vector<Value>;

[[noreturn]] void refuse(std::string why);
/// The argument at a place, or of a name; null where there is none.
const Value* given(const Arguments& arguments, const Named& named, std::size_t place, std::string_view name);
/// Throw ArgumentError that names the function `of`.
const std::string& need_string(const Value* v, std::string_view of);
std::int64_t need_integer(const Value* v, std::string_view of);
std::string limited(std::string s, Budget& budget);

/// Without the characters of `set`, or white space with null, at its ends.
std::string stripped(std::string_view s, const Value* set, bool left, bool right);
std::string lower(std::string_view s);
std::string upper(std::string_view s);
std::string capitalized(std::string_view s);
std::string titled(std::string_view s);
/// count < 0: all.
std::string replaced(std::string_view s, std::string_view from, std::string_view to, std::int64_t count,
                     Budget& budget);
/// At white space with null; at most `most` times unless it is negative.
ValueList split(std::string_view s, const Value* by, std::int64_t most, bool from_right);
ValueList lines_of(std::string_view s);
/// The operator % of strings: %s, %d, %i, %x, %f, %e, %g and %%, with width and precision.
std::string formatted(std::string_view pattern, const Arguments& arguments);
/// str.format with {}, {0} and {name}.
std::string brace_formatted(std::string_view s, const Arguments& a, const Named& named);

/// What a filter over sequences goes through: elements, keys or characters.
ValueList elements(const Value& v, std::string_view of, Budget& budget);
/// Pairs of a dict.
ValueList items_of(const Value& v);

}  // namespace cgp::model::jinja
