// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"

namespace cgp::kernels {
namespace {

[[noreturn]] void bad(const std::string& kernel, const OptionInfo& o, std::string legal) {
  throw ArgumentError({text::cat("option ", o.name, " of ", kernel, " must be ", legal),
                       {},
                       text::cat("got \"", o.value, "\""),
                       o.help});
}

template <class T>
T number(const std::string& kernel, const OptionInfo& o, const char* legal) {
  T v{};
  const char* end = o.value.data() + o.value.size();
  auto r = std::from_chars(o.value.data(), end, v);
  if (r.ec != std::errc() || r.ptr != end) bad(kernel, o, legal);
  return v;
}

}  // namespace

Options::Options(std::string kernel, std::vector<OptionInfo> defaults)
    : kernel_(std::move(kernel)), values_(std::move(defaults)) {}

void Options::set(std::string_view name, std::string_view value) {
  for (auto& o : values_)
    if (o.name == name) {
      o.value = value;
      given_.emplace_back(name);
      return;
    }
  std::vector<std::string> names;
  for (auto& o : values_) names.push_back(o.name);
  auto close = text::closest(name, names);
  throw ArgumentError({text::cat(kernel_, " has no option ", name),
                       {},
                       text::cat("it has ", text::join(names, ", ")),
                       close.empty() ? std::string() : text::cat("did you mean ", close[0], "?")});
}

bool Options::given(std::string_view name) const {
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

void Options::agree(std::string_view array, const HostArray& a,
                    const std::vector<std::pair<std::string, std::uint64_t>>& sizes) const {
  const auto differ = [&](std::string_view option, const std::string& there) {
    throw ArgumentError(
        {text::cat("option ", option, " and input ", array, " of ", kernel_, " must agree"),
         {},
         text::cat(option, "=", text(option), " was given, but ", array, " is ", cgp::name(a.dtype), " ",
                   describe_shape(a.shape), ", so ", option, " is ", there),
         text::cat("leave ", option, " out: the input decides")});
  };
  for (const auto& [name, value] : sizes)
    if (given(name) && size(name) != value) differ(name, text::cat(value));
  if (given("dtype") && parse_dtype(text("dtype")) != a.dtype)
    differ("dtype", std::string(cgp::name(a.dtype)));
}

const OptionInfo& Options::find(std::string_view name) const {
  for (auto& o : values_)
    if (o.name == name) return o;
  throw ArgumentError(text::cat(kernel_, " has no option ", name));
}

const std::string& Options::text(std::string_view name) const { return find(name).value; }
std::uint64_t Options::size(std::string_view name) const {
  return number<std::uint64_t>(kernel_, find(name), "an integer, 0 or more");
}
std::int64_t Options::integer(std::string_view name) const {
  return number<std::int64_t>(kernel_, find(name), "an integer");
}
double Options::real(std::string_view name) const { return number<double>(kernel_, find(name), "a number"); }
bool Options::flag(std::string_view name) const {
  const auto& v = find(name).value;
  if (v == "1" || v == "true") return true;
  if (v == "0" || v == "false") return false;
  bad(kernel_, find(name), "0, 1, true or false");
}

DType Options::dtype(std::string_view name, std::span<const DType> legal) const {
  const auto& o = find(name);
  std::string list;
  auto t = parse_dtype(o.value);
  for (DType l : legal) {
    if (t == l) return l;
    text::append(list, text::cat(list.empty() ? "" : ", ", cgp::name(l)));
  }
  bad(kernel_, o, text::cat("one of ", list));
}

std::string Options::choice(std::string_view name, std::span<const std::string_view> legal) const {
  const auto& o = find(name);
  std::string list;
  for (auto l : legal) {
    if (o.value == l) return o.value;
    text::append(list, text::cat(list.empty() ? "" : ", ", l));
  }
  bad(kernel_, o, text::cat("one of ", list));
}

const HostArray* find_input(const std::vector<NamedArray>& given, std::string_view name) {
  for (auto& g : given)
    if (g.name == name) return &g.array;
  return nullptr;
}

HostArray input_or_random(const std::vector<NamedArray>& given, std::string_view name, DType t,
                          const std::vector<std::uint64_t>& shape, std::uint64_t seed) {
  const HostArray* a = find_input(given, name);
  if (!a) return random_array(t, shape, seed);
  if (a->dtype != t || a->shape != shape)
    throw ArgumentError({text::cat("input ", name, " must be ", cgp::name(t), " ", describe_shape(shape)),
                         {},
                         text::cat("it is ", cgp::name(a->dtype), " ", describe_shape(a->shape)),
                         {}});
  return *a;
}

const KernelEntry& find_kernel(std::string_view name) {
  std::vector<std::string> names;
  for (auto& e : catalog()) {
    if (e.name == name) return e;
    names.push_back(e.name);
  }
  auto close = text::closest(name, names);
  throw ArgumentError({text::cat("there is no kernel ", name),
                       {},
                       text::cat("kernels: ", text::join(names, ", ")),
                       close.empty() ? std::string() : text::cat("did you mean ", close[0], "?")});
}

}  // namespace cgp::kernels
