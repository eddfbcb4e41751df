// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays on the host with a run-time element type: what kernels' cases, .npy files and oracles exchange.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/base/random.h"

namespace cgp::kernels {

struct HostArray {
  DType dtype = DType::f32;
  std::vector<std::uint64_t> shape;  ///< row-major (C order)
  std::vector<std::byte> bytes;

  HostArray() = default;
  HostArray(DType t,
            std::vector<std::uint64_t> shape);  ///< zeros; throws ArgumentError when the size overflows
  std::uint64_t size() const;                   ///< elements
  double at(std::uint64_t i) const { return load_as_double(dtype, bytes.data(), i); }
  void set(std::uint64_t i, double v) { store_from_double(dtype, bytes.data(), i, v); }
  std::vector<double> as_doubles() const;
};

/// The elements as host type T; T's size must be the array's.
template <class T>
std::span<T> typed(HostArray& a) {
  return {reinterpret_cast<T*>(a.bytes.data()), a.bytes.size() / sizeof(T)};
}
template <class T>
std::span<const T> typed(const HostArray& a) {
  return {reinterpret_cast<const T*>(a.bytes.data()), a.bytes.size() / sizeof(T)};
}

/// Normally distributed values (mean 0, deviation 1), rounded to the type; integers are uniform in [-8, 8]
/// (unsigned [0, 16]). The same for the same seed on every machine.
HostArray random_array(DType t, std::vector<std::uint64_t> shape, std::uint64_t seed);
std::string describe_shape(const std::vector<std::uint64_t>& shape);  ///< "[4, 1024]"

/// The outcome of comparing a result with its oracle, element by element.
struct Check {
  bool pass = false;
  std::uint64_t compared = 0, wrong = 0;
  double max_error = 0;    ///< largest |got - want| over finite elements
  double worst_ratio = 0;  ///< largest |got - want| / tolerance: 1 is the limit
  std::uint64_t worst_index = 0;
  double worst_got = 0, worst_want = 0, worst_tolerance = 0;
  std::string pattern;           ///< where the errors are, when there are any ("rows 64 to 127, all columns")
  std::string note;              ///< what `compared` is when it is not every element; else empty
  std::string failure;           ///< of a check of the whole that is not by element; else empty
  std::string describe() const;  ///< one or two lines
};

/// `tolerance(i)` is the allowed |error| of element i. NaN must meet NaN, infinities must be equal. The last
/// dimension of the shape gives columns for the pattern.
Check compare(const HostArray& got, const std::vector<double>& want,
              const std::function<double(std::uint64_t)>& tolerance);

/// Half a unit in the last place of `t` relative to a value: the rounding of one store.
double unit_roundoff(DType t);

}  // namespace cgp::kernels
