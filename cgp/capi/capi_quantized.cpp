// SPDX-License-Identifier: Apache-2.0
// Quantised weights: handles, products, blocks on the host, GGUF files.
#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/kernels/quantized_matmul/quantized_grouped.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"
#include "cgp/quant/encode_layouts.h"

struct cgp_quantized_weight {
  cgp::kernels::QuantizedWeight weight{};  // views without a device: that of the stream is put in
  cgp::kernels::View packed{};
  cgp::runtime::Memory codes_memory{}, packed_memory{};  // of a weight that was loaded
};
struct cgp_gguf {
  cgp::model::Gguf file;
};

namespace cgp::capi {
namespace {

using kernels::QuantizedWeight;

std::span<const std::byte> host_bytes(const void* p, std::uint64_t n) {
  if (n) require(p, "blocks");
  return {static_cast<const std::byte*>(p), std::size_t(n)};
}

kernels::View weight_tensor(const cgp_tensor* given, const char* name) {
  if (!given) return {};
  const Tensor t(given, "quantized_weight_new", name);
  t.expect_contiguous();
  return {t.address(), t.elements(), t.dtype(), false, nullptr};
}

QuantizedWeight weight_of(const char* format, std::uint64_t rows, std::uint64_t cols) {
  require(format, "format");
  QuantizedWeight w;
  w.format = kernels::quantized_format_named(format), w.rows = rows, w.cols = cols;
  return w;
}

/// The weight's tensors as those of the stream's device.
QuantizedWeight on_device(const cgp_stream& s, const cgp_quantized_weight& w) {
  QuantizedWeight q = w.weight;
  for (auto* v : {&q.codes, &q.scales, &q.zeros, &q.g_idx, &q.absmax_table, &q.absmax_scales})
    v->backend = s.device.backend().get();
  if (w.codes_memory.address() && w.codes_memory.device().backend() != s.device.backend())
    throw ArgumentError("the weight was loaded to another device than the stream's");
  return q;
}

kernels::View error_word(const cgp_stream& s, const cgp_tensor* given, const char* op) {
  if (!given) return {};
  const Tensor t(given, op, "error_flag");
  t.expect({DType::u32, DType::s32});
  if (t.elements() != 1) t.fail("it must have one element");
  auto v = t.view(s, true);
  v.dtype = DType::u32;
  return v;
}

kernels::QuantizedMatmul product_of(const cgp_stream& s, const cgp_quantized_weight& w, const Tensor& x,
                                    bool transposed, const cgp_tensor* error_flag, const Tensor& y) {
  x.expect_rank(1, CGP_MAX_RANK);
  const std::uint64_t k = transposed ? w.weight.rows : w.weight.cols,
                      n = transposed ? w.weight.cols : w.weight.rows;
  if (x.size(-1) != k)
    x.fail(text::cat("its last dimension must be ", k, ": the weight is [", w.weight.rows, ", ",
                     w.weight.cols, "]"));
  auto shape = x.shape();
  shape.back() = n;
  y.expect_shape(shape, "x and the weight"), y.expect_apart(x);
  kernels::QuantizedMatmul p;
  p.weight = on_device(s, w), p.packed = w.packed, p.transposed = transposed;
  p.packed.backend = s.device.backend().get();
  p.x = x.view(s), p.y = y.view(s, true);
  p.m = x.rows().rows, p.x_layout.pitch = x.rows().pitch, p.y_layout.pitch = y.rows().pitch;
  p.error_flag = error_word(s, error_flag, "quantized_matmul");
  return p;
}

kernels::QuantizedGrouped experts_of(const cgp_stream& s, const cgp_quantized_weight& w, const Tensor& x,
                                     const Tensor& ends, const Tensor& y) {
  for (const Tensor* t : {&x, &y}) t->expect_rank(2, 2), t->expect_contiguous();
  ends.expect({DType::s32, DType::u32, DType::s64, DType::u64}), ends.expect_rank(1, 1);
  ends.expect_contiguous();
  kernels::QuantizedGrouped p;
  p.groups = ends.size(0);
  if (!p.groups || w.weight.rows % p.groups)
    ends.fail(text::cat("their number must divide the ", w.weight.rows, " rows of the weight"));
  if (x.size(1) != w.weight.cols)
    x.fail(text::cat("its last dimension must be ", w.weight.cols, ": the weight is [", w.weight.rows, ", ",
                     w.weight.cols, "]"));
  const std::uint64_t shape[] = {x.size(0), w.weight.rows / p.groups};
  y.expect({x.dtype()}), y.expect_shape(shape, "x and the weight"), y.expect_apart(x), y.expect_apart(ends);
  p.weight = on_device(s, w), p.packed = w.packed, p.packed.backend = s.device.backend().get();
  p.x = x.view(s), p.y = y.view(s, true), p.m = x.size(0);
  p.ends = ends.view(s);
  p.ends.dtype = bytes(p.ends.dtype) == 8 ? DType::u64 : DType::u32;
  return p;
}

void describe(const model::GgufTensor& t, cgp_gguf_tensor* out) {
  cgp_gguf_tensor d{};
  d.size = std::min(out->size, sizeof d);
  d.name = t.name.data(), d.name_length = t.name.size();
  std::string format(t.type->name);
  for (const auto& f : quant::all_formats())
    if (f.ggml_type == int(t.type->id)) format = f.name;
  std::memcpy(d.format, format.data(), std::min(format.size(), sizeof d.format - 1));
  d.rank = std::int32_t(t.shape.size());
  std::copy(t.shape.rbegin(), t.shape.rend(), d.shape);
  d.data = t.data.data(), d.bytes = t.data.size();
  std::memcpy(out, &d, d.size);
}

kernels::WeightFormat packable(const char* format) {
  require(format, "format");
  const auto f = kernels::packed_format(kernels::quantized_format_named(format));
  if (!f)
    throw Unsupported({text::cat("weights of ", format, " cannot be packed"),
                       {},
                       "the product for few rows has q4_0, q8_0, q4_k, q5_k and q6_k",
                       "use the weight as it is: it is dequantised for each product"});
  return *f;
}

}  // namespace
}  // namespace cgp::capi

using namespace cgp;

cgp_status cgp_quantized_weight_new(const char* format, uint64_t rows, uint64_t cols, const cgp_tensor* codes,
                                    const cgp_quantized_options* options, cgp_quantized_weight** out) {
  return capi::guarded([&] {
    capi::require(out, "out"), capi::require(codes, "codes");
    cgp_quantized_options defaults{};
    defaults.size = sizeof defaults;
    const auto o = capi::known(options, defaults, "quantized_weight_new");
    auto made = std::make_unique<cgp_quantized_weight>();
    auto& w = made->weight = capi::weight_of(format, rows, cols);
    w.codes = capi::weight_tensor(codes, "codes"), w.scales = capi::weight_tensor(o.scales, "scales");
    w.zeros = capi::weight_tensor(o.zeros, "zeros"), w.g_idx = capi::weight_tensor(o.g_idx, "g_idx");
    w.absmax_table = capi::weight_tensor(o.absmax_table, "absmax_table");
    w.absmax_scales = capi::weight_tensor(o.absmax_scales, "absmax_scales");
    made->packed = capi::weight_tensor(o.packed, "packed");
    w.group = o.group, w.zeros_minus_one = o.zeros_minus_one != 0, w.absmax_offset = o.absmax_offset;
    if (o.absmax_block) w.absmax_block = o.absmax_block;
    if (o.scale_rows) w.scale_rows = o.scale_rows;
    if (o.scale_cols) w.scale_cols = o.scale_cols;
    kernels::check(w, "quantized_weight_new");
    *out = made.release();
  });
}

cgp_status cgp_quantized_weight_load(cgp_device* device, const char* format, uint64_t rows, uint64_t cols,
                                     const void* blocks, uint64_t bytes, int32_t packed,
                                     cgp_quantized_weight** out) {
  return capi::guarded([&] {
    capi::require(device, "device"), capi::require(out, "out");
    const auto from = capi::host_bytes(blocks, bytes);
    auto made = std::make_unique<cgp_quantized_weight>();
    auto& w = made->weight = capi::weight_of(format, rows, cols);
    const auto f = kernels::block_format(w.format);
    if (!f)
      throw ArgumentError({text::cat(format, " has no blocks: its codes and scales are tensors"),
                           {},
                           {},
                           "put them on the device and use cgp_quantized_weight_new"});
    w.codes = kernels::View(0, bytes, DType::u8, false, nullptr);
    kernels::check(w, "quantized_weight_load");
    quant::check_scales(*f, from);
    const auto upload = [&](std::span<const std::byte> host, runtime::Memory& memory, kernels::View& view) {
      memory = runtime::Memory::alloc(device->device, host.size(), 1, "a quantised weight");
      view = kernels::View(memory.address(), host.size(), DType::u8, false, nullptr);
      if (host.empty()) return;
      const runtime::Region to{device->device.backend().get(), memory.address(), host.size()};
      runtime::detail::copy_to_device(to, host.data());
    };
    upload(from, made->codes_memory, w.codes);
    const auto order = kernels::packed_format(w);
    if (packed && order && device->device.info().cc() == 90) {
      std::vector<std::byte> copy(kernels::packed_bytes(*order, rows, cols));
      kernels::pack_weights(*order, rows, cols, from, copy);
      upload(copy, made->packed_memory, made->packed);
    }
    *out = made.release();
  });
}
void cgp_quantized_weight_free(cgp_quantized_weight* weight) { delete weight; }

cgp_status cgp_quantized_weight_get_info(cgp_quantized_weight* weight, cgp_quantized_info* out) {
  return capi::guarded([&] {
    capi::require(weight, "weight"), capi::require(out, "out");
    cgp_quantized_info i{};
    i.size = std::min(out->size, sizeof i);
    i.rows = weight->weight.rows, i.cols = weight->weight.cols;
    i.stored_bytes = kernels::stored_bytes(weight->weight);
    i.packed_bytes = weight->packed.given ? weight->packed.elements : 0;
    const auto format = kernels::name(weight->weight.format);
    std::memcpy(i.format, format.data(), format.size());
    std::memcpy(out, &i, i.size);
  });
}

cgp_status cgp_dequantize(cgp_stream* s, cgp_quantized_weight* weight, uint64_t first_row,
                          const cgp_tensor* error_flag, const cgp_tensor* out) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight");
    const capi::Tensor to(out, "dequantize", "out");
    to.expect_rank(2, 2);
    if (to.size(1) != weight->weight.cols)
      to.fail(text::cat("it must have ", weight->weight.cols, " columns"));
    const auto rows = to.rows();
    kernels::Dequantize d;
    d.weight = capi::on_device(*s, *weight), d.out = to.view(*s, true);
    d.first_row = first_row, d.rows = rows.rows, d.out_layout.pitch = rows.pitch;
    d.error_flag = capi::error_word(*s, error_flag, "dequantize");
    kernels::dequantize(s->stream, d);
  });
}

cgp_status cgp_quantized_matmul_workspace(cgp_stream* s, const cgp_tensor* x, cgp_quantized_weight* weight,
                                          int32_t transposed, const cgp_tensor* error_flag,
                                          const cgp_tensor* y, uint64_t* bytes) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight"), capi::require(bytes, "bytes");
    const char* op = "quantized_matmul_workspace";
    const auto p = capi::product_of(*s, *weight, capi::Tensor(x, op, "x"), transposed != 0, error_flag,
                                    capi::Tensor(y, op, "y"));
    *bytes = kernels::quantized_matmul_plan(p, s->device.info()).workspace;
  });
}
cgp_status cgp_quantized_matmul(cgp_stream* s, const cgp_tensor* x, cgp_quantized_weight* weight,
                                int32_t transposed, const cgp_tensor* workspace, const cgp_tensor* error_flag,
                                const cgp_tensor* y) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight");
    const char* op = "quantized_matmul";
    const capi::Tensor to(y, op, "y");
    auto p = capi::product_of(*s, *weight, capi::Tensor(x, op, "x"), transposed != 0, error_flag, to);
    if (workspace) {
      const capi::Tensor room(workspace, op, "workspace");
      room.expect({DType::u8}), room.expect_contiguous(), room.expect_apart(to);
      p.workspace = room.view(*s, true);
    }
    kernels::quantized_matmul(s->stream, p);
  });
}

cgp_status cgp_quantized_grouped_matmul_workspace(cgp_stream* s, const cgp_tensor* x,
                                                  cgp_quantized_weight* weight, const cgp_tensor* ends,
                                                  const cgp_tensor* y, uint64_t* bytes) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight"), capi::require(bytes, "bytes");
    const char* op = "quantized_grouped_matmul_workspace";
    const auto p = capi::experts_of(*s, *weight, capi::Tensor(x, op, "x"), capi::Tensor(ends, op, "ends"),
                                    capi::Tensor(y, op, "y"));
    *bytes = kernels::quantized_grouped_plan(p, s->device.info()).workspace;
  });
}
cgp_status cgp_quantized_grouped_matmul(cgp_stream* s, const cgp_tensor* x, cgp_quantized_weight* weight,
                                        const cgp_tensor* ends, const cgp_tensor* workspace,
                                        const cgp_tensor* y) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight");
    const char* op = "quantized_grouped_matmul";
    const capi::Tensor to(y, op, "y");
    auto p = capi::experts_of(*s, *weight, capi::Tensor(x, op, "x"), capi::Tensor(ends, op, "ends"), to);
    if (workspace) {
      const capi::Tensor room(workspace, op, "workspace");
      room.expect({DType::u8}), room.expect_contiguous(), room.expect_apart(to);
      p.workspace = room.view(*s, true);
    }
    kernels::quantized_grouped(s->stream, p);
  });
}

cgp_status cgp_quantized_bytes(const char* format, uint64_t elements, uint64_t* bytes) {
  return capi::guarded([&] {
    capi::require(format, "format"), capi::require(bytes, "bytes");
    *bytes = quant::bytes_of(quant::format_named(format), elements);
  });
}
cgp_status cgp_quantize(const char* format, const float* values, uint64_t elements, void* blocks,
                        uint64_t bytes) {
  return capi::guarded([&] {
    capi::require(format, "format");
    if (elements) capi::require(values, "values"), capi::require(blocks, "blocks");
    quant::encode(quant::format_named(format), {values, std::size_t(elements)},
                  {static_cast<std::byte*>(blocks), std::size_t(bytes)});
  });
}
cgp_status cgp_quantize_int4(const float* values, uint64_t rows, uint64_t cols, uint64_t group,
                             uint32_t* qweight, uint32_t* qzeros, uint16_t* scales) {
  return capi::guarded([&] {
    for (const void* p : {static_cast<const void*>(values), static_cast<const void*>(qweight),
                          static_cast<const void*>(qzeros), static_cast<const void*>(scales)})
      capi::require(p, "an array of quantize_int4");
    const auto t = quant::encode_int4({values, std::size_t(rows * cols)}, rows, cols, group);
    std::copy(t.qweight.begin(), t.qweight.end(), qweight),
        std::copy(t.qzeros.begin(), t.qzeros.end(), qzeros);
    std::copy(t.scales.begin(), t.scales.end(), scales);
  });
}
cgp_status cgp_quantize_fp8(const float* values, uint64_t rows, uint64_t cols, uint64_t scale_rows,
                            uint64_t scale_cols, uint8_t* codes, float* scales) {
  return capi::guarded([&] {
    capi::require(values, "values"), capi::require(codes, "codes"), capi::require(scales, "scales");
    const auto t = quant::encode_fp8({values, std::size_t(rows * cols)}, rows, cols, scale_rows, scale_cols);
    std::copy(t.codes.begin(), t.codes.end(), codes), std::copy(t.scales.begin(), t.scales.end(), scales);
  });
}
cgp_status cgp_quantized_decode(const char* format, const void* blocks, uint64_t bytes, float* values,
                                uint64_t elements) {
  return capi::guarded([&] {
    capi::require(format, "format");
    if (elements) capi::require(values, "values");
    quant::decode(quant::format_named(format), capi::host_bytes(blocks, bytes),
                  {values, std::size_t(elements)});
  });
}
cgp_status cgp_quantized_check(const char* format, const void* blocks, uint64_t bytes) {
  return capi::guarded([&] {
    capi::require(format, "format");
    quant::check_scales(quant::format_named(format), capi::host_bytes(blocks, bytes));
  });
}
cgp_status cgp_quantized_packed_bytes(const char* format, uint64_t rows, uint64_t cols, uint64_t* bytes) {
  return capi::guarded([&] {
    capi::require(bytes, "bytes");
    *bytes = 0;
    *bytes = kernels::packed_bytes(capi::packable(format), rows, cols);
  });
}
cgp_status cgp_quantized_pack(const char* format, uint64_t rows, uint64_t cols, const void* blocks,
                              uint64_t bytes, void* packed, uint64_t packed_bytes) {
  return capi::guarded([&] {
    const auto f = capi::packable(format);
    if (packed_bytes) capi::require(packed, "packed");
    kernels::pack_weights(f, rows, cols, capi::host_bytes(blocks, bytes),
                          {static_cast<std::byte*>(packed), std::size_t(packed_bytes)});
  });
}
cgp_status cgp_quantized_weight_pack(cgp_quantized_weight* host, void* packed, uint64_t* bytes) {
  return capi::guarded([&] {
    capi::require(host, "host"), capi::require(bytes, "bytes");
    const auto& w = host->weight;
    if (packed) return kernels::pack_weight(w, {static_cast<std::byte*>(packed), std::size_t(*bytes)});
    *bytes = kernels::packed_size(w);
  });
}

cgp_status cgp_quantized_weight_pack_on(cgp_stream* s, cgp_quantized_weight* weight,
                                        const cgp_tensor* packed) {
  return capi::guarded([&] {
    capi::require(s, "s"), capi::require(weight, "weight");
    const capi::Tensor to(packed, "quantized_weight_pack_on", "packed");
    to.expect({DType::u8}), to.expect_contiguous();
    kernels::pack_weight(s->stream, capi::on_device(*s, *weight), to.view(*s, true));
  });
}

cgp_status cgp_gguf_open(const char* path, cgp_gguf** out) {
  return capi::guarded([&] {
    capi::require(path, "path"), capi::require(out, "out");
    try {
      *out = new cgp_gguf{model::Gguf::open(path)};
    } catch (const ParseError&) {
      throw;
    } catch (const Error& e) {  // no such file, or it may not be read
      throw ArgumentError({e.rule(), e.where(), e.why(), e.hint()});
    }
  });
}
void cgp_gguf_free(cgp_gguf* file) { delete file; }
cgp_status cgp_gguf_count(cgp_gguf* file, uint64_t* tensors) {
  return capi::guarded([&] {
    capi::require(file, "file"), capi::require(tensors, "tensors");
    *tensors = file->file.tensors().size();
  });
}
cgp_status cgp_gguf_at(cgp_gguf* file, uint64_t index, cgp_gguf_tensor* out) {
  return capi::guarded([&] {
    capi::require(file, "file"), capi::require(out, "out");
    const auto& all = file->file.tensors();
    if (index >= all.size())
      throw ArgumentError(
          {text::cat("the file has ", all.size(), " tensors"), {}, text::cat("index = ", index), {}});
    capi::describe(all[std::size_t(index)], out);
  });
}
cgp_status cgp_gguf_find(cgp_gguf* file, const char* name, cgp_gguf_tensor* out) {
  return capi::guarded([&] {
    capi::require(file, "file"), capi::require(name, "name"), capi::require(out, "out");
    capi::describe(file->file.tensor(name), out);
  });
}
