// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory as an argument whose element type is known at run time, and the checks that kernels on rows
// make of their arguments. Errors name the operation and the argument.
#include <initializer_list>
#include <optional>
#include <string_view>

#include "cgp/runtime/launcher.h"

namespace cgp::kernels {

/// Somebody else's memory; default: not given. Made from Slice<T>, Slice<const T> and Buffer<T>.
struct View {
  std::uint64_t address = 0, elements = 0;
  DType dtype = DType::f32;
  bool given = false, writable = false;
  const runtime::Backend* backend = nullptr;

  View() = default;
  View(std::uint64_t address, std::uint64_t elements, DType dtype, bool writable,
       const runtime::Backend* backend)
      : address(address),
        elements(elements),
        dtype(dtype),
        given(true),
        writable(writable),
        backend(backend) {}
  template <class T>
  View(const runtime::Slice<T>& s)  // NOLINT: implicit by design
      : View(s.address(), s.size(), *runtime::detail::element_type<std::remove_const_t<T>>(),
             !std::is_const_v<T>, s.backend()) {}
  template <class T>
  View(runtime::Buffer<T>& b) : View(b.all()) {}  // NOLINT: implicit by design
  template <class T>
  View(const runtime::Buffer<T>& b) : View(b.all()) {}  // NOLINT: implicit by design

  /// Stands for memory of any size and alignment where a variant is chosen but nothing is launched.
  static View stand_in(DType t) { return View(0, ~0ull >> 8, t, true, nullptr); }

  runtime::Arg arg() const {
    return runtime::Arg::pointer(address, std::nullopt, writable || !given, backend);
  }
  /// The part from element `first` on.
  View from(std::uint64_t first) const;
};

namespace row {

/// Rows of `cols` elements, `pitch` apart (0: cols). With `inner` > 1 the rows lie in groups of `inner`,
/// `outer` apart.
struct Layout {
  std::uint64_t pitch = 0, inner = 1, outer = 0;
};

struct Checker {
  std::string_view op;
  [[noreturn]] void fail(std::string_view argument, std::string_view rule, std::string what,
                         std::string hint = {}) const;
  /// Given, of one of these types, writable where `out`.
  void present(std::string_view argument, const View& v, std::initializer_list<DType> types, bool out) const;
  /// And holds `rows` rows. Returns the layout with its defaults filled in.
  Layout rows(std::string_view argument, const View& v, std::uint64_t rows, std::uint64_t cols,
              const Layout& layout) const;
  void vector(std::string_view argument, const View& v, std::uint64_t elements) const;
};

inline constexpr std::initializer_list<DType> kFloats = {DType::f32, DType::f16, DType::bf16};

/// Whether accesses of `elements` elements fit: address, pitches and columns are multiples.
bool fits(const View& v, std::uint64_t cols, const Layout& l, int elements);

/// How rows lie. edges: in every row accesses of `elements` elements fit from some column on, the same one in
/// all tensors (RowConfig::edges).
enum class Fit { element, edges, wide };
struct RowsAt {
  const View& view;
  const Layout& layout;
};
/// Of the tensors and column vectors that are given. Edges are asked of the first tensor, which must have the
/// narrowest type.
Fit fit(int elements, std::uint64_t cols, std::initializer_list<RowsAt> rows,
        std::initializer_list<View> columns = {});

}  // namespace row
}  // namespace cgp::kernels
