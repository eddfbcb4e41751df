// SPDX-License-Identifier: Apache-2.0
#include "cgp/capi/tensor.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"

namespace cgp::capi {
namespace {

template <class I>
std::string list(const I* values, int count) {
  std::string s = "[";
  for (int i = 0; i < count; ++i) text::append(s, text::cat(i ? ", " : "", values[i]));
  return s + "]";
}
constexpr std::int64_t kMost = std::int64_t(1) << 60;

/// Bytes from an element of one tensor to one of another: a sum of terms, `step` times anything from `least`
/// to `most`.
struct ElementDistance {
  struct Term {
    std::int64_t step, least, most;
  };
  std::vector<Term> terms;  ///< of falling steps
  std::int64_t below = 0,
               above = 0;  ///< at which an element of the one reaches into one of the other: between these
  int visits = 4096;       ///< what an answer may cost; then it is yes

  /// The elements of t, seen from the other tensor (sign 1) or towards it (-1). False where no address is
  /// that large.
  bool add(const Tensor& t, int sign) {
    for (int d = 0; d < t.rank(); ++d) {
      const auto last = std::int64_t(t.size(d)) - 1, stride = std::int64_t(t.stride(d));
      if (last <= 0 || !stride) continue;
      if (stride > kMost / 16 / last) return false;
      const auto step = stride * std::int64_t(bytes(t.dtype()));
      auto term = std::find_if(terms.begin(), terms.end(), [&](const Term& x) { return x.step == step; });
      if (term == terms.end()) term = terms.insert(term, Term{step, 0, 0});
      (sign > 0 ? term->most : term->least) += sign * last;
    }
    return true;
  }
  bool reaches(std::int64_t at, std::size_t from = 0) {
    if (from == terms.size()) return below < at && at < above;
    if (--visits < 0) return true;
    std::int64_t least = 0, most = 0;  // what the terms behind this one can add
    for (std::size_t i = from + 1; i < terms.size(); ++i)
      least += terms[i].step * terms[i].least, most += terms[i].step * terms[i].most;
    const Term& t = terms[from];
    const std::int64_t low = below + 1 - at - most, high = above - 1 - at - least;
    const auto down = [&](std::int64_t x) { return x / t.step - (x % t.step < 0); };
    const std::int64_t end = std::min(t.most, down(high));
    for (std::int64_t i = std::max(t.least, -down(-low)); i <= end; ++i)
      if (reaches(at + i * t.step, from + 1)) return true;
    return false;
  }
};

/// Whether an element of one is in the memory of an element of the other. Tensors may lie between each
/// other's elements.
bool tensors_share(const Tensor& a, const Tensor& b) {
  const auto size_a = std::uint64_t(bytes(a.dtype())), size_b = std::uint64_t(bytes(b.dtype()));
  if (!a.elements() || !b.elements() || a.address() >= b.address() + b.extent() * size_b ||
      b.address() >= a.address() + a.extent() * size_a)
    return false;
  ElementDistance d;
  d.below = -std::int64_t(size_a), d.above = std::int64_t(size_b);
  if (!d.add(a, 1) || !d.add(b, -1)) return true;
  std::sort(d.terms.begin(), d.terms.end(), [](const auto& x, const auto& y) { return x.step > y.step; });
  return d.reaches(std::int64_t(a.address() - b.address()));
}

}  // namespace

Tensor::Tensor(const cgp_tensor* t, const char* op, const char* name) : op_(op), name_(name) {
  if (!t) throw ArgumentError(text::cat(op, ": ", name, " is NULL"));
  t_ = *t;
  if (t_.dtype < 0 || t_.dtype >= kDTypeCount)
    throw ArgumentError(text::cat(op, ": ", name, " has the unknown dtype ", t_.dtype));
  if (t_.rank < 0 || t_.rank > CGP_MAX_RANK)
    throw ArgumentError(
        text::cat(op, ": ", name, " has ", t_.rank, " dimensions; 0 to ", CGP_MAX_RANK, " are possible"));
  std::int64_t elements = 1;
  for (int i = 0; i < t_.rank; ++i) {
    if (t_.shape[i] < 0) fail("a size is negative");
    if (t_.shape[i] > 1 && t_.stride[i] < 0) fail("a stride is negative", "flip the copy, not the view");
    if (t_.shape[i] && elements > kMost / t_.shape[i]) fail("it is too large");
    elements *= t_.shape[i];
  }
  for (int i = 0; elements && i < t_.rank; ++i)
    if (t_.shape[i] > 1 && t_.stride[i] > kMost / 16 / (t_.shape[i] - 1)) fail("it spans too much memory");
  if (elements && !t_.address) fail("its address is 0");
  if (t_.address % std::uint64_t(bytes(dtype())))
    fail(text::cat("its address is not a multiple of ", bytes(dtype())));
}

void Tensor::fail(std::string rule, std::string hint) const {
  throw ArgumentError(
      {text::cat(op_, ": ", name_, ": ", rule), {}, text::cat(name_, " is ", text()), std::move(hint)});
}

std::string Tensor::text() const {
  auto s = text::cat(cgp::name(dtype()), " ", list(t_.shape, t_.rank));
  if (!contiguous()) text::append(s, text::cat(" with strides ", list(t_.stride, t_.rank)));
  return s;
}
std::uint64_t Tensor::size(int d) const { return std::uint64_t(t_.shape[dim(d)]); }
std::uint64_t Tensor::stride(int d) const { return std::uint64_t(t_.stride[dim(d)]); }
std::uint64_t Tensor::elements() const {
  std::uint64_t n = 1;
  for (int i = 0; i < t_.rank; ++i) n *= size(i);
  return n;
}
std::vector<std::uint64_t> Tensor::shape() const { return {t_.shape, t_.shape + t_.rank}; }

void Tensor::expect(std::initializer_list<DType> types) const {
  if (std::find(types.begin(), types.end(), dtype()) != types.end()) return;
  std::vector<std::string> names;
  for (DType t : types) names.emplace_back(cgp::name(t));
  fail(text::cat("its dtype must be ", text::join(names, " or ")));
}
void Tensor::expect_rank(int least, int most) const {
  if (rank() < least || rank() > most)
    fail(least == most ? text::cat("it must have ", least, " dimensions")
                       : text::cat("it must have ", least, " to ", most, " dimensions"));
}
void Tensor::expect_shape(std::span<const std::uint64_t> shape, const char* like) const {
  bool same = int(shape.size()) == rank();
  for (int i = 0; same && i < rank(); ++i) same = shape[std::size_t(i)] == size(i);
  if (!same)
    fail(text::cat("its shape must be ", list(shape.data(), int(shape.size())), ", as ", like, " asks"));
}
bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = t_.rank - 1; i >= 0; --i) {
    if (t_.shape[i] == 0) return true;
    if (t_.shape[i] != 1 && t_.stride[i] != expected) return false;
    expected *= t_.shape[i];
  }
  return true;
}
void Tensor::expect_contiguous() const {
  if (!contiguous()) fail("it must be contiguous", "pass x.contiguous()");
}

Tensor::Batch Tensor::leading(int keep) const {
  Batch b;
  std::uint64_t next = 0;  // what the stride of the next outer dimension must be
  for (int i = rank() - keep - 1; i >= 0; --i) {
    if (size(i) == 1) continue;
    if (b.count == 1)
      b.stride = stride(i);
    else if (stride(i) != next && size(i) != 0)
      fail("its leading dimensions do not collapse to one", "pass x.contiguous()");
    b.count *= size(i);
    next = stride(i) * size(i);
  }
  return b;
}

Tensor::Rows Tensor::rows() const {
  Rows r;
  if (rank() == 0) return r;
  r.cols = size(-1);
  if (r.cols > 1 && stride(-1) != 1) fail("its last dimension must be contiguous", "pass x.contiguous()");
  const Batch b = leading(1);
  r.rows = b.count, r.pitch = b.count > 1 ? b.stride : r.cols;
  if (r.pitch < r.cols && elements()) fail("its rows overlap", "pass x.contiguous()");
  return r;
}

std::uint64_t Tensor::extent() const {
  if (!elements()) return 0;
  std::uint64_t last = 0;
  for (int i = 0; i < t_.rank; ++i) last += (size(i) - 1) * stride(i);
  return last + 1;
}

kernels::View Tensor::view(const cgp_stream& s, bool out) const {
  return {t_.address, extent(), dtype(), out, s.device.backend().get()};
}
void Tensor::expect_apart(const Tensor& other, bool same) const {
  if (!tensors_share(*this, other)) return;
  bool equal = same && address() == other.address() && dtype() == other.dtype() && rank() == other.rank();
  for (int i = 0; equal && i < rank(); ++i)
    equal = size(i) == other.size(i) && (size(i) == 1 || stride(i) == other.stride(i));
  if (!equal)
    fail(text::cat("it shares memory with ", other.name_, same ? " without being the same" : ""),
         text::cat("give ", name_, " memory of its own"));
}

}  // namespace cgp::capi
