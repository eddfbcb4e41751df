// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantised weights packed for AVX-512 VNNI: groups of 16 rows whose sums are the lanes of one register. Nothing is rounded:
// codes and scales are those of the file, in another order (0 to 12 % more bytes, mxfp4 18 %). Products are bound by memory
// where those of matmul.h are bound by unpacking; README.md has the numbers.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cgp/cpu/quant/matmul.h"

namespace cgp::cpu {

struct PackedOptions {
  Activations activations = Activations::int16;  ///< or int8
  int threads = 1;                               ///< at most; 0: all processors. Small products use fewer
};

class PackedWeights {
 public:
  /// m rows of k elements, as quant_matmul() takes them; `threads` as in QuantOptions. Throws ArgumentError as that does,
  /// Unsupported where can_pack() says no.
  PackedWeights(quant::Format format, std::span<const std::byte> weights, std::int64_t m, std::int64_t k,
                int threads = 1);

  quant::Format format() const { return format_; }
  std::int64_t rows() const { return m_; }
  std::int64_t k() const { return k_; }
  std::int64_t bytes() const { return groups() * group_bytes_; }
  /// Of m rows of k elements, before they are packed. Unsupported where can_pack() says no.
  static std::int64_t bytes_for(quant::Format format, std::int64_t m, std::int64_t k);

 private:
  friend void quant_matmul(const PackedWeights&, std::int64_t, std::span<const float>, std::span<float>,
                           const PackedOptions&);
  std::int64_t groups() const { return (m_ + 15) / 16; }

  quant::Format format_;
  std::int64_t m_, k_, group_bytes_ = 0;
  std::shared_ptr<AlignedBuffer> memory_;  ///< shared by copies: it is not written after the constructor
};

/// The format has a packed form (q4_0 to q8_0, q4_k to q6_k, iq4_nl, iq4_xs, mxfp4, nvfp4) and the processor AVX-512 VNNI.
bool can_pack(quant::Format format);

/// y[j * rows + i] = row i . x[j * k ...] for n vectors of any number. Each run of 32 activations is rounded to steps of its
/// largest magnitude / 32767 (int16: about as exact as f32, and as fast where one vector waits for memory) or / 127 (int8);
/// an activation is off by at most half of one. Neither threads nor other vectors change a bit. Throws as quant_matmul()
/// of stored weights does, and Unsupported for Activations::f32.
void quant_matmul(const PackedWeights& weights, std::int64_t n, std::span<const float> x, std::span<float> y,
                  const PackedOptions& options = {});

}  // namespace cgp::cpu
