// SPDX-License-Identifier: Apache-2.0
// Both directions in the catalogue.
#include "cgp/base/error.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/embedding/embedding_ref.h"

namespace cgp::kernels {
namespace {

using row::Expected, row::TensorCase;

std::vector<runtime::KernelImage> forward_ships(std::string_view arch) {
  std::vector<Variant> all;
  for (DType t : {DType::f32, DType::f16})
    for (std::uint64_t cols : {64, 7})
      for (DType i : {DType::s32, DType::s64}) {
        Embedding e;
        e.weight = e.out = View::stand_in(t), e.indices = View::stand_in(i), e.rows = e.vocab = 4,
        e.cols = cols;
        if (i == DType::s64) e.error_flag = View::stand_in(DType::u32);
        for (auto& v : embedding_variants(e)) all.push_back(std::move(v));
      }
  return images(all, arch);
}
std::vector<runtime::KernelImage> backward_ships(std::string_view arch) {
  std::vector<Variant> all;
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (std::uint64_t cols : {64, 7})
      for (DType i : {DType::s32, DType::s64}) {
        EmbeddingBackward e;
        e.dout = e.dweight = View::stand_in(t), e.indices = View::stand_in(i),
        e.workspace = View::stand_in(DType::u32);
        e.rows = e.vocab = 4, e.cols = cols;
        if (i == DType::s64) e.error_flag = View::stand_in(DType::u32);
        e.accumulate = i == DType::s64;
        for (auto& v : embedding_backward_variants(e)) all.push_back(std::move(v));
      }
  return images(all, arch);
}

HostArray indices_of(const Options& o, const std::vector<NamedArray>& given, std::uint64_t rows,
                     std::uint64_t vocab, std::uint64_t seed) {
  if (const HostArray* t = find_input(given, "indices"))
    return input_or_random(given, "indices", t->dtype, {rows}, seed);
  HostArray a(o.flag("wide") ? DType::s64 : DType::s32, {rows});
  const auto random = random_array(DType::u32, {rows}, seed + 1);
  for (std::uint64_t r = 0; r < rows; ++r)  // a few rows are named often
    a.set(r, double((r % 3 ? std::uint64_t(random.at(r)) * 2654435761u + r * 40503u : r % 5) % vocab));
  return a;
}

struct Sizes {
  DType type;
  std::uint64_t rows, vocab, cols;
};
Sizes sizes(const Options& o, const std::vector<NamedArray>& given, std::string_view array) {
  const bool forward = array == "weight";
  const auto shape = row::row_shape(o, given, array, forward ? "vocab" : "rows");
  Sizes s{shape.type, forward ? o.size("rows") : shape.rows, forward ? shape.rows : o.size("vocab"),
          shape.cols};
  if (const HostArray* i = find_input(given, "indices")) {
    s.rows = i->size(), o.agree("indices", *i, {{"rows", s.rows}});
    row::expect_indices("embedding", "indices", *i, s.vocab);
  }
  if (s.rows && !s.vocab) row::Checker{"embedding"}.fail("vocab", "must be at least 1", "vocab = 0");
  return s;
}

std::unique_ptr<Case> forward(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto z = sizes(o, given, "weight");
  auto c = std::make_unique<TensorCase>(d);
  Embedding e;
  e.rows = z.rows, e.vocab = z.vocab, e.cols = z.cols;
  e.weight = c->input("weight", input_or_random(given, "weight", z.type, {z.vocab, z.cols}, seed));
  e.indices = c->input("indices", indices_of(o, given, z.rows, z.vocab, seed));
  e.out = c->output("out", z.type, {z.rows, z.cols});
  // Compulsory are the rows that are named, not the table.
  c->bytes = double(2 * z.rows * z.cols) * cgp::bytes(z.type) + double(z.rows) * cgp::bytes(e.indices.dtype);
  c->runs(embedding_variants(e), "rows by index");
  c->run = [e](runtime::Stream& s) { embedding(s, e); };
  c->oracle = [e](const TensorCase& t) {
    const auto want =
        embedding_ref(t.host("weight").as_doubles(), t.host("indices").as_doubles(), e.vocab, e.cols);
    return std::vector<Expected>{{"out", want, std::vector<double>(want.size(), 0)}};
  };
  return c;
}

std::unique_ptr<Case> backward(const runtime::Device& d, const Options& o,
                               const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto z = sizes(o, given, "dout");
  auto c = std::make_unique<TensorCase>(d);
  EmbeddingBackward e;
  e.rows = z.rows, e.vocab = z.vocab, e.cols = z.cols, e.padding_idx = o.integer("padding");
  e.dout = c->input("dout", input_or_random(given, "dout", z.type, {z.rows, z.cols}, seed));
  e.indices = c->input("indices", indices_of(o, given, z.rows, z.vocab, seed));
  e.dweight = c->output("dweight", z.type, {z.vocab, z.cols});
  e.workspace = c->workspace(DType::u32, embedding_workspace(z.rows, z.vocab));
  c->flops = double(z.rows * z.cols);
  c->runs(embedding_backward_variants(e), "lists of who named a row, then sums in their order");
  c->run = [e](runtime::Stream& s) { embedding_backward(s, e); };
  c->oracle = [e](const TensorCase& t) {
    const auto g = embedding_backward_ref(t.host("dout").as_doubles(), t.host("indices").as_doubles(),
                                          e.vocab, e.cols, e.padding_idx, e.dout.dtype);
    return std::vector<Expected>{{"dweight", g.dweight, g.tolerance}};
  };
  return c;
}

std::vector<OptionInfo> options() {
  return {{"dtype", "bf16", "f32, f16 or bf16"},
          {"rows", "1024", "indices"},
          {"vocab", "32000", "rows of the table"},
          {"cols", "1024", "columns"},
          {"wide", "1", "indices are s64, else s32"}};
}

}  // namespace

KernelEntry embedding_entry() {
  KernelEntry e;
  e.name = "embedding", e.summary = "rows of a table by index";
  e.options = options(), e.inputs = {"weight", "indices"};
  e.images = forward_ships, e.prepare = forward;
  return e;
}
KernelEntry embedding_backward_entry() {
  KernelEntry e;
  e.name = "embedding_backward", e.summary = "gradient of a table that rows were taken from, deterministic";
  e.options = options(), e.inputs = {"dout", "indices"};
  e.options.push_back({"padding", "-1", "the index without a gradient; -1: none"});
  e.images = backward_ships, e.prepare = backward;
  return e;
}

}  // namespace cgp::kernels
