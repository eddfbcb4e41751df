// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/call_library.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"

namespace cgp::profile {
namespace {

using text::cat;

constexpr std::size_t kIntegers = 16, kReals = 8;

[[noreturn]] void refuse(const std::string& word, const std::string& why) {
  throw ArgumentError(ErrorText{"an argument is TYPE:VALUE, TYPE*:COUNT or str:TEXT",
                                {},
                                cat("\"", word, "\": ", why),
                                "--args 'i32:4096,f32*:4096,i32:1' for cblas_sasum"});
}

double real_of(const std::string& type, const std::string& value) {
  char* end = nullptr;
  const double v = std::strtod(value.c_str(), &end);
  if (value.empty() || *end) refuse(cat(type, ":", value), "no number");
  return v;
}

std::int64_t integer_of(const std::string& type, const std::string& value) {
  std::int64_t v = 0;
  const auto r = std::from_chars(value.data(), value.data() + value.size(), v);
  if (value.empty() || r.ec != std::errc() || r.ptr != value.data() + value.size())
    refuse(cat(type, ":", value), "no integer");
  return v;
}

std::size_t size_of(const std::string& type) {
  if (type == "u8") return 1;
  if (type == "i32" || type == "u32" || type == "f32") return 4;
  if (type == "i64" || type == "u64" || type == "f64") return 8;
  refuse(type, "the types are u8 (behind pointers), i32, u32, i64, u64, f32, f64");
}

/// Names in the dynamic table that look like it.
std::string similar(const std::string& library, const std::string& symbol) {
  const std::string nm = find_program("nm");
  if (nm.empty()) return {};
  const auto r = measure::run_process({nm, "-D", "--defined-only", library});
  std::vector<std::string> names;
  for (const auto line : text::split(r.out, '\n'))
    if (const auto at = line.rfind(' '); at != std::string_view::npos)
      names.emplace_back(line.substr(at + 1));
  if (names.empty()) return {};
  return cat("it has ", text::join(text::closest(symbol, names), ", "));
}

}  // namespace

CallArguments::CallArguments(const std::string& all) {
  for (const auto part : text::split(all, ',')) {
    const std::string word(text::trim(part));
    if (word.empty()) continue;
    const auto colon = word.find(':');
    if (colon == std::string::npos) refuse(word, "no colon");
    add(word.substr(0, colon), word.substr(colon + 1));
    ++count_;
  }
  if (integers_.size() > kIntegers || reals_.size() > kReals)
    throw ArgumentError(ErrorText{cat("a call has at most ", kIntegers, " integers and pointers and ", kReals,
                                      " floating-point numbers"),
                                  {},
                                  cat(integers_.size(), " and ", reals_.size()),
                                  {}});
}

void CallArguments::add(const std::string& type, const std::string& value) {
  if (type == "str") {
    auto buffer = std::make_unique<std::uint64_t[]>(value.size() / 8 + 1);
    std::memcpy(buffer.get(), value.c_str(), value.size() + 1);
    integers_.push_back(reinterpret_cast<std::uintptr_t>(buffer.get()));
    buffers_.push_back(std::move(buffer)), sizes_.push_back(value.size() + 1);
    return;
  }
  if (!type.empty() && type.back() == '*') {
    const std::string element = type.substr(0, type.size() - 1);
    const std::size_t size = size_of(element);
    const std::int64_t n = integer_of(type, value);
    if (n < 1 || n > (std::int64_t(1) << 34))
      refuse(cat(type, ":", value), "a buffer has 1 to 2^34 elements");
    auto buffer = std::make_unique<std::uint64_t[]>((std::size_t(n) * size + 7) / 8);
    for (std::int64_t i = 0; i < n && element[0] == 'f'; ++i) {
      const double v = 1 + double(i % 7 - 3) * 0.125;
      if (element == "f32")
        reinterpret_cast<float*>(buffer.get())[i] = float(v);
      else
        std::memcpy(&buffer[std::size_t(i)], &v, 8);
    }
    integers_.push_back(reinterpret_cast<std::uintptr_t>(buffer.get()));
    buffers_.push_back(std::move(buffer)), sizes_.push_back(std::uint64_t(n) * size);
    return;
  }
  size_of(type);
  if (type == "u8") refuse(type, "it is a type of buffers only");
  if (type[0] != 'f') {
    integers_.push_back(std::uint64_t(integer_of(type, value)));
    return;
  }
  const double v = real_of(type, value);
  std::uint64_t bits = 0;
  if (type == "f32") {
    const float f = float(v);
    std::memcpy(&bits, &f, 4);
  } else {
    std::memcpy(&bits, &v, 8);
  }
  reals_.push_back(bits);
}

std::uint64_t CallArguments::buffer_bytes() const {
  std::uint64_t sum = 0;
  for (const auto s : sizes_) sum += s;
  return sum;
}

LibraryCall::LibraryCall(const std::string& library, const std::string& symbol, CallArguments arguments)
    : arguments_(std::move(arguments)) {
#if !defined(__x86_64__)
  throw Unsupported(ErrorText{"calls by name follow the convention of x86-64", {}, {}, {}});
#endif
  void* so = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!so) throw Unsupported(ErrorText{"the library must be one that can be loaded", library, dlerror(), {}});
  function_ = dlsym(so, symbol.c_str());
  if (!function_)
    throw ArgumentError(
        ErrorText{cat("the library must have the symbol ", symbol), library, similar(library, symbol), {}});
  arguments_.integers_.resize(kIntegers), arguments_.reals_.resize(kReals);
}

void LibraryCall::operator()() const {
  using u = std::uint64_t;
  // Six integers travel in registers and the others on the stack, in order; eight reals in registers of their
  // own. Arguments that the function does not have do no harm.
  using Function = void (*)(u, u, u, u, u, u, double, double, double, double, double, double, double, double,
                            u, u, u, u, u, u, u, u, u, u);
  const auto f = reinterpret_cast<Function>(function_);
  const u* i = arguments_.integers_.data();
  double r[kReals];
  std::memcpy(r, arguments_.reals_.data(), sizeof r);
  f(i[0], i[1], i[2], i[3], i[4], i[5], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], i[6], i[7], i[8],
    i[9], i[10], i[11], i[12], i[13], i[14], i[15]);
}

}  // namespace cgp::profile
