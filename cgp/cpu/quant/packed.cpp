// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/packed.h"

#include <algorithm>

#include "cgp/cpu/quant/product_impl.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

/// Null where there is no packed form.
const quant_versions::PackedKernels* kernels(quant::Format f) {
#if defined(__x86_64__)
  const auto& k = quant_versions::packed_avx512_vnni.by[int(f)];
  if (k.bytes && has(Isa::avx512_vnni)) return &k;
#endif
  (void)f;
  return nullptr;
}

/// Throws Unsupported where there is none.
const quant_versions::PackedKernels& required_kernels(quant::Format f) {
  if (const auto* k = kernels(f)) return *k;
  throw Unsupported(ErrorText{text::cat("there is no packed form of ", quant::info(f).name, " here"),
                              {},
                              text::cat("this processor has ", name(widest_isa())),
                              "multiply the weights as they are stored"});
}

}  // namespace

bool can_pack(quant::Format f) { return kernels(f) != nullptr; }

PackedWeights::PackedWeights(quant::Format format, std::span<const std::byte> weights, int64_t m, int64_t k,
                             int threads)
    : format_(format), m_(m), k_(k), memory_(std::make_shared<AlignedBuffer>()) {
  const int64_t row_bytes = check_weights(format, weights, m, k);
  const auto& f = required_kernels(format);
  group_bytes_ = f.bytes(k);
  auto* to = static_cast<std::uint8_t*>(memory_->at_least(std::size_t(std::max<int64_t>(bytes(), 1))));
  parallel_for(groups(), 1, threads, [&](int64_t g, int64_t) {
    f.pack(reinterpret_cast<quant_versions::Bytes>(weights.data()) + 16 * g * row_bytes, row_bytes,
           std::min<int64_t>(16, m_ - 16 * g), k_, to + g * group_bytes_);
  });
}

int64_t PackedWeights::bytes_for(quant::Format format, int64_t m, int64_t k) {
  return (m + 15) / 16 * required_kernels(format).bytes(k);
}

void quant_matmul(const PackedWeights& w, int64_t n, std::span<const float> x, std::span<float> y,
                  const PackedOptions& o) {
  const int threads = check_product(w.m_, n, w.k_, x.size(), y.size(), o.threads);
  if (o.activations == Activations::f32)
    throw Unsupported(ErrorText{"products of packed weights round activations",
                                {},
                                "Activations::f32 was asked for",
                                "use int16, or the weights as they are stored"});
  if (y.empty()) return;
  const auto run = [&](const auto& product, auto&& rounded) {
    const auto* groups = w.memory_->as<std::uint8_t>();
    parallel_for(w.groups(), 1, threads, [&](int64_t g, int64_t) {
      const int64_t rows = std::min<int64_t>(16, w.m_ - 16 * g);
      for (int64_t j = 0; j < n;) {
        const int which = n - j >= 8 ? 3 : n - j >= 4 ? 2 : n - j >= 2 ? 1 : 0;
        product[which](groups + g * w.group_bytes_, w.k_, rounded.vector(j), rounded.stride(), rows,
                       y.data() + j * w.m_ + 16 * g, w.m_);
        j += 1 << which;
      }
    });
  };
  const auto& f = *kernels(w.format_);
  if (o.activations == Activations::int8)
    run(f.int8, RoundedVectors<quant_versions::Int8Activations>(x, n, w.k_));
  else
    run(f.int16, RoundedVectors<quant_versions::Int16Activations>(x, n, w.k_));
}

}  // namespace cgp::cpu
