// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_table.h"

#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/simt/gemm_f32_rows.h"
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"

namespace cgp::kernels {
namespace {

constexpr std::string_view kH200 =
#include "cgp/kernels/gemm/select/gemm_table_h200.def"
    ;

GemmProblem sizes_of(GemmProblem p) {
  p.lda = p.ldb = p.ldc = p.stride_a = p.stride_b = p.stride_c = 0;
  return p.dense();
}

std::string types_text(const GemmProblem& q) {
  GemmProblem usual{.type = q.type};
  usual = usual.dense();
  const GemmProblem p = q.dense();
  std::string out(cgp::name(p.type));
  if (p.type_b != usual.type_b || p.type_c != usual.type_c)
    text::append(out, text::cat("_", cgp::name(*p.type_b), "_", cgp::name(*p.type_c)));
  if (p.precision != GemmPrecision::standard) text::append(out, text::cat(":", name(p.precision)));
  if (p.scaling != GemmScaling::none) text::append(out, text::cat("@", name(p.scaling)));
  return out;
}

// Takes what types_text() gives; the word that is none, else empty.
std::string_view take_types(GemmProblem& p, std::string_view s) {
  const auto cut = [&](char at) {
    const auto i = s.find(at);
    const auto tail = i == s.npos ? std::string_view() : s.substr(i + 1);
    s = s.substr(0, i);
    return tail;
  };
  const auto scaling = cut('@'), precision = cut(':');
  if (!scaling.empty()) {
    for (auto v : {GemmScaling::tensor, GemmScaling::channel, GemmScaling::block})
      if (scaling == name(v)) p.scaling = v;
    if (p.scaling == GemmScaling::none) return scaling;
  }
  if (!precision.empty()) {
    for (auto v : {GemmPrecision::fast, GemmPrecision::strict})
      if (precision == name(v)) p.precision = v;
    if (p.precision == GemmPrecision::standard) return precision;
  }
  const auto types = text::split(s, '_');
  if (types.size() != 1 && types.size() != 3) return s;
  for (const auto word : types)
    if (!parse_dtype(word)) return word.empty() ? "an empty word" : word;
  p.type = *parse_dtype(types[0]);
  if (types.size() == 3) p.type_b = parse_dtype(types[1]), p.type_c = parse_dtype(types[2]);
  return {};
}

}  // namespace

// A table speaks of dense operands: others meet memory differently.
bool is_dense(const GemmProblem& p) {
  const auto d = sizes_of(p);
  const bool rows = p.lda == d.lda && p.ldb == d.ldb && p.ldc == d.ldc;
  return rows &&
         (p.batch == 1 || (p.stride_a == d.stride_a && p.stride_b == d.stride_b && p.stride_c == d.stride_c));
}

std::string gemm_key(const GemmProblem& p) {
  return text::cat(types_text(p), "/", p.trans_a ? "t" : "n", p.trans_b ? "t" : "n", "/",
                   p.batch == 1 ? std::string() : text::cat(p.batch, "x"), p.m, "x", p.n, "x", p.k);
}

GemmProblem parse_gemm_key(std::string_view key) {
  const auto bad = [&](std::string why) {
    throw ArgumentError({"a gemm problem is written TYPE/LAYOUT/MxNxK or TYPE/LAYOUT/BATCHxMxNxK",
                         std::string(key), std::move(why), "for example bf16/nt/4096x4096x4096"});
  };
  const auto fields = text::split(key, '/');
  if (fields.size() != 3) bad(text::cat("it has ", fields.size(), " fields"));
  GemmProblem p;
  if (const auto wrong = take_types(p, fields[0]); !wrong.empty())
    bad(text::cat(wrong, " is not an element type, precision or scaling"));
  const std::string_view layouts[] = {"nn", "nt", "tn", "tt"};
  if (std::find(std::begin(layouts), std::end(layouts), fields[1]) == std::end(layouts))
    bad(text::cat(fields[1], " is not a layout"));
  p.trans_a = fields[1][0] == 't', p.trans_b = fields[1][1] == 't';
  std::vector<std::uint64_t> sizes;
  for (const auto word : text::split(fields[2], 'x')) {
    std::uint64_t v = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
    if (error != std::errc() || end != word.data() + word.size())
      bad(text::cat("\"", word, "\" is not a size"));
    sizes.push_back(v);
  }
  if (sizes.size() != 3 && sizes.size() != 4) bad(text::cat("it has ", sizes.size(), " sizes"));
  if (sizes.size() == 4) p.batch = sizes[0];
  const std::size_t i = sizes.size() - 3;
  p.m = sizes[i], p.n = sizes[i + 1], p.k = sizes[i + 2];
  return p.dense();
}

// ---------------------------------------------------------------- the table
GemmTable GemmTable::parse(std::string_view all, std::string_view from) {
  GemmTable table;
  std::size_t number = 0;
  for (const auto raw : text::split(all, '\n')) {
    ++number;
    const auto line = text::trim(raw);
    if (line.empty() || line[0] == '#') continue;
    const auto words = text::split(line, ' ');
    double us = 0;
    const bool whole =
        words.size() == 3 && std::from_chars(words[2].data(), words[2].data() + words[2].size(), us).ptr ==
                                 words[2].data() + words[2].size();
    if (!whole || !(us > 0))
      throw ArgumentError({"a line of a gemm table is a problem, a variant and its microseconds",
                           text::cat(from, ":", number), std::string(line), "remove the line, or the file"});
    (void)parse_gemm_key(words[0]);
    try {
      table.set(std::string(words[0]), {parse_gemm_config(words[1]), us});
    } catch (const ArgumentError&) {  // a config of another version: the problem counts as not measured
    }
  }
  return table;
}

namespace {
const GemmTable& h200_table() {
  static const GemmTable h200 = GemmTable::parse(kH200, "gemm_table_h200.def");
  return h200;
}
}  // namespace

const GemmTable& GemmTable::shipped(const runtime::DeviceInfo& d) {
  static const GemmTable none;
  return d.name.find("H200") != std::string::npos ? h200_table() : none;
}

std::string GemmTable::text() const {
  std::string out;
  for (const auto& [key, row] : rows_)
    text::append(out, text::cat(key, " ", print(row.config), " ", row.microseconds, "\n"));
  return out;
}

const GemmMeasured* GemmTable::find(const GemmProblem& q) const {
  if (rows_.empty() || !q.epilogue.empty()) return nullptr;
  const GemmProblem p = q.dense();
  if (!is_dense(p)) return nullptr;
  const auto at = rows_.find(gemm_key(p));
  return at == rows_.end() ? nullptr : &at->second;
}

std::optional<GemmMeasured> GemmTable::find_like(const GemmProblem& q) const {
  if (const auto* row = find(q)) return *row;
  GemmProblem p = q.dense();
  if (!p.plain() || (p.type != DType::f16 && p.type != DType::bf16)) return {};
  const auto t = p.type, other = t == DType::f16 ? DType::bf16 : DType::f16;
  if (p.type_b != t || p.type_c != t) return {};
  p.type = other, p.type_b = other, p.type_c = other;
  const auto* row = find(p);
  if (!row) return {};
  GemmMeasured same = *row;
  for (DType* d : {&same.config.a, &same.config.b, &same.config.c})
    if (*d == other) *d = t;
  return same;
}

void GemmTable::merge(const GemmTable& other) {
  for (const auto& [key, row] : other.rows_) rows_[key] = row;
}

// ---------------------------------------------------------------- choices
std::vector<GemmChoice> gemm_candidates(const GemmProblem& q, const GemmAddresses& at,
                                        const runtime::DeviceInfo& d) {
  if (const auto other = canonicalize_gemm(q); other.changed) {
    auto out = gemm_candidates(other.problem, other.at(at), d);
    for (auto& c : out) c.canonicalized = true;
    return out;
  }
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out{select_gemm(p, at, d)};
  if (p.k == 0 || p.c_elements() == 0 || !p.plain()) return out;
  // Rows that nothing else can address: as they are, or copied.
  if (out[0].kind == GemmFamily::misaligned)
    if (auto copied = select_packed_gemm(p, at, d)) out.push_back(std::move(*copied));
  const GemmChoice first = out.back();
  const bool packed = first.pack_a || first.pack_b || first.pack_c;
  const auto add = [&](GemmChoice c) {
    if (packed && (c.kind == GemmFamily::sm90_pingpong || c.kind == GemmFamily::sm90_split_k))
      return;  // it would arrange operands its own way
    for (const auto& have : out)
      if (have.variant.name == c.variant.name) return;
    c.pack_a = first.pack_a, c.pack_b = first.pack_b, c.pack_c = first.pack_c;
    out.push_back(std::move(c));
  };
  if (first.kind == GemmFamily::misaligned || p.flops() < (packed ? 2e9 : 5e8))
    for (auto& c : gemm_misaligned_candidates(p, at, d))
      if (c.variant.name != out[0].variant.name) out.push_back(std::move(c));
  // The problem that the kernel sees when operands go through scratch memory.
  GemmProblem inner = p;
  GemmAddresses inner_at = at;
  if (first.pack_a)
    inner_at.a = 0, inner.lda = packed_ld(p.trans_a ? p.m : p.k),
    inner.stride_a = inner.lda * (p.trans_a ? p.k : p.m);
  if (first.pack_b)
    inner_at.b = 0, inner.ldb = packed_ld(p.trans_b ? p.k : p.n),
    inner.stride_b = inner.ldb * (p.trans_b ? p.n : p.k);
  if (first.pack_c)
    inner_at.c = 0, inner_at.padded_ldc = true, inner.ldc = packed_ld(p.n), inner.stride_c = inner.ldc * p.m;
  if (reject(GemmFamily::sm90, inner, inner_at, d).empty())
    for (auto& c : gemm_candidates_sm90(inner, inner_at, d)) add(std::move(c));
  if (reject(GemmFamily::skinny, inner, inner_at, d).empty() && p.m <= 16)
    for (int unroll : {2, 4, 8}) {
      GemmSkinnyTuning t;
      t.cols = p.m <= 8 ? 8 : 16, t.warps = p.m <= 8 ? 8 : 4, t.unroll = unroll;
      GemmChoice c{GemmFamily::skinny, gemm_skinny(p.type, t), {}, std::uint32_t(t.rows)};
      c.tile_m = std::uint32_t(t.cols);
      add(std::move(c));
    }
  if (d.arch == "sm_100a")
    for (const auto& f : gemm_families())
      if (f.only == "sm_100a" && f.layouts == GemmFamilyInfo::Layouts::all &&
          reject(f.family, inner, inner_at, d).empty())
        add(choose_sm100(f.family, inner, inner_at, d));
  if (reject(GemmFamily::sm80, inner, inner_at, d).empty())
    add({GemmFamily::sm80, gemm_sm80(p.type, p.trans_a, p.trans_b), {}});
  if (out[0].kind != GemmFamily::simt && !first.pack_a && !first.pack_b && !first.pack_c)
    add({GemmFamily::simt, gemm_simt(p.type, p.trans_a, p.trans_b), {}});
  return out;
}

namespace {
GemmConfig with_source_c(GemmConfig c, bool source_c) {
  c.source_c = source_c;
  return c;
}
}  // namespace

GemmChoice select_gemm(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                       const GemmTable& table) {
  const auto row = table.find_like(p);
  if (!row) return select_gemm(p, at, d);
  const auto measured = [&](GemmChoice c) {
    c.rule = "measured: a winner of the table";
    c.why = text::cat("measured: the fastest of its candidates, ", row->microseconds, " us");
    return c;
  };
  const auto all = gemm_candidates(p, at, d);
  for (const auto& c : all)
    if (c.variant.config == row->config) return measured(c);
  // Of hundreds of tiles of sm90_persistent the candidates are those that are predicted fastest.
  const auto like = std::find_if(all.begin(), all.end(),
                                 [](const auto& c) { return c.kind == GemmFamily::sm90_persistent; });
  if (like != all.end())
    // What was measured did not read C; the same tile adds beta * C.
    if (auto c = choose_persistent_sm90(with_source_c(row->config, p.beta != 0))) {
      c->pack_a = like->pack_a, c->pack_b = like->pack_b, c->pack_c = like->pack_c;
      return measured(std::move(*c));
    }
  return all[0];
}

namespace {

// Products that are not plain, of which programs carry the kernels: other types and scales in every layout,
// and in that of a linear layer (nt) its epilogues.
std::vector<GemmProblem> mixed_problems(bool trans_a, bool trans_b, std::uint64_t m, std::uint64_t n,
                                        std::uint64_t k, const runtime::DeviceInfo& d) {
  const GemmProblem base{.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k};
  std::vector<GemmProblem> all;
  const auto add = [&](DType t, DType c, GemmPrecision precision, GemmScaling scaling) {
    auto& p = all.emplace_back(base);
    p.type = t, p.type_c = c, p.precision = precision, p.scaling = scaling;
  };
  for (DType t : {DType::f16, DType::bf16})
    if (t == DType::f16 || d.cc() >= 80) add(t, DType::f32, GemmPrecision::standard, GemmScaling::none);
  add(DType::f32, DType::f32, GemmPrecision::fast, GemmScaling::none);
  add(DType::s8, DType::s32, GemmPrecision::standard, GemmScaling::none);
  if (d.cc() < 80) return all;
  add(DType::s8, DType::bf16, GemmPrecision::standard, GemmScaling::channel);
  for (auto scaling : {GemmScaling::none, GemmScaling::tensor, GemmScaling::channel, GemmScaling::block}) {
    add(DType::e4m3, DType::bf16, GemmPrecision::standard, scaling);
    if (scaling != GemmScaling::block) add(DType::e4m3, DType::bf16, GemmPrecision::fast, scaling);
  }
  if (trans_a || !trans_b) return all;
  for (DType t : {DType::f16, DType::bf16}) {
    const DeviceArray columns(16, n, t), matrix(16, m * n, t);
    const auto bias = epilogue::bias(columns);
    for (const auto& e : {bias, bias | epilogue::relu(), bias | epilogue::silu(), bias | epilogue::gelu(),
                          bias | epilogue::gelu_tanh(), epilogue::residual(matrix),
                          bias | epilogue::residual(matrix), epilogue::swiglu(Pairing::interleaved)}) {
      auto& p = all.emplace_back(base);
      p.type = t, p.epilogue = e;
    }
  }
  return all;
}

}  // namespace

std::vector<Variant> gemm_selected_variants(std::string_view arch) {
  runtime::DeviceInfo d;
  d.arch = arch, d.sm_count = 132;
  for (const char c : arch)
    if (c >= '0' && c <= '9') d.cc_major = d.cc_major * 10 + (c - '0');
  d.cc_minor = d.cc_major % 10, d.cc_major /= 10;
  std::map<std::string, Variant> found;
  const auto take = [&](const GemmChoice& c) {
    if (reject(c.variant, arch).empty()) found.try_emplace(c.variant.name, c.variant);
    if (c.kind != GemmFamily::sm90_split_k && c.kind != GemmFamily::misaligned) return;
    if (c.split_k == 1) return;
    for (DType t : {DType::f16, DType::bf16}) {
      auto reduce = gemm_split_k_reduce(t, c.split_k);
      found.try_emplace(reduce.name, std::move(reduce));
    }
  };
  const auto with = [&](Variant v) {
    if (reject(v, arch).empty()) found.try_emplace(v.name, v);
  };
  constexpr std::pair<std::uint64_t, std::uint64_t> shapes[] = {
      {256, 256},    {512, 512},     {1024, 1024},  {2048, 2048},  {4096, 4096},
      {8192, 8192},  {16384, 16384}, {14336, 4096}, {4096, 14336}, {28672, 8192},
      {8192, 28672}, {151936, 4096}, {4104, 4104},  {3001, 5003}};
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        if (t == DType::bf16 && d.cc() < 80) continue;
        for (std::uint64_t m : {1, 4, 8, 16, 32, 64, 100, 128, 256, 300, 512, 1024, 2048, 4096, 8192, 16384})
          for (const auto& [n, k] : shapes)
            for (std::uint64_t batch : {1, 64}) {
              if (batch > 1 && (n > 1024 || m > 1024)) continue;
              take(select_gemm(
                  {.type = t, .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k, .batch = batch}, {}, d));
            }
        take(select_gemm({.type = t, .trans_a = ta, .trans_b = tb, .m = 64, .n = 64, .k = 0}, {}, d));
        take(select_gemm({.type = t, .trans_a = ta, .trans_b = tb, .m = 5, .n = 7, .k = 9}, {}, d));
        for (const auto& [m, n, k] :
             {std::array<std::uint64_t, 3>{100, 300, 500}, {99, 301, 501}, {2, 4097, 4099}, {500, 500, 500}})
          take(select_gemm({.type = t, .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k}, {}, d));
        // Accumulating into C and misaligned rows take other paths.
        for (std::uint64_t n : {512, 4096})
          take(select_gemm({.type = t, .trans_a = ta, .trans_b = tb, .m = n, .n = n, .k = n, .beta = 1}, {},
                           d));
      }
  if (arch == "sm_90a")
    for (const auto& [key, row] : h200_table().rows())
      take(select_gemm(parse_gemm_key(key), {}, d, h200_table()));
  for (int matrices : {1, 2, 3}) with(gemm_pack(matrices));
  for (DType t : {DType::f32, DType::f16, DType::bf16}) with(gemm_split_k_reduce_f32(t));
  for (auto& v : gemm_f32_rows_variants()) with(std::move(v));
  for (auto& v : gemm_arrange_variants()) with(std::move(v));
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      with(gemm_guarded_simt({.type = DType::f32, .trans_a = ta, .trans_b = tb}));
      for (const auto& [m, n, k] : {std::array<std::uint64_t, 3>{64, 4096, 4096},
                                    {128, 256, 256},
                                    {256, 256, 256},
                                    {512, 512, 512},
                                    {1024, 1024, 1024},
                                    {2048, 2048, 2048},
                                    {4096, 4096, 4096},
                                    {8192, 8192, 8192}})
        for (auto& p : mixed_problems(ta, tb, m, n, k, d)) take(select_gemm(p, {}, d));
    }
  std::vector<Variant> out;
  for (auto& [name, v] : found) out.push_back(std::move(v));
  return out;
}

std::vector<GemmRegret> gemm_regret(const std::map<std::string, std::map<std::string, double>>& times,
                                    const runtime::DeviceInfo& d) {
  std::vector<GemmRegret> out;
  for (const auto& [key, variants] : times) {
    const auto chosen = select_gemm(parse_gemm_key(key), {}, d).variant.name;
    const auto selected = variants.find(chosen);
    if (selected == variants.end()) continue;
    const auto best = std::min_element(variants.begin(), variants.end(),
                                       [](const auto& x, const auto& y) { return x.second < y.second; });
    out.push_back({key, chosen, best->first, selected->second, best->second});
  }
  return out;
}

// ---------------------------------------------------------------- the user's file
std::string gemm_table_path(const runtime::DeviceInfo& d) {
  const auto env = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  std::string folder = env("CGP_CACHE_DIR");
  if (folder.empty() && !env("XDG_CACHE_HOME").empty()) folder = env("XDG_CACHE_HOME") + "/cgp";
  if (folder.empty() && !env("HOME").empty()) folder = env("HOME") + "/.cache/cgp";
  if (folder.empty() || folder == "off") return {};
  std::string device;
  for (const char c : d.name) device += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return text::cat(folder, "/gemm_", device, "_", d.driver_version.value_or(0), "_" CGP_VERSION ".txt");
}

GemmTable load_gemm_table(const runtime::DeviceInfo& d, std::string* problem) {
  const auto path = gemm_table_path(d);
  std::error_code none;
  if (path.empty() || !std::filesystem::exists(path, none)) return {};
  try {
    return GemmTable::parse(read_file(path), path);
  } catch (const Error& e) {
    if (problem) *problem = e.what();
    return {};
  }
}

namespace {

// Held by one process at a time, and given back by the system when that ends in whatever way.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    const auto fail = [&](std::string why) {
      if (fd_ >= 0) ::close(fd_);
      throw Error({text::cat("cannot lock ", path), {}, std::move(why), {}});
    };
    if (fd_ < 0) fail(std::strerror(errno));
    for (int tries = 0; ::flock(fd_, LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail(std::strerror(errno));
      if (tries == 200) fail("another process has held it for two seconds");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~FileLock() { ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace

GemmTable update_gemm_table(const GemmTable& rows, const runtime::DeviceInfo& d, bool replace) {
  const auto path = gemm_table_path(d);
  if (path.empty())
    throw Unsupported({"there is no folder to keep measurements in",
                       {},
                       "HOME and XDG_CACHE_HOME are not set, or CGP_CACHE_DIR=off",
                       "set CGP_CACHE_DIR"});
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const FileLock lock(path + ".lock");
  GemmTable all = replace ? load_gemm_table(d) : rows;
  all.merge(replace ? rows : load_gemm_table(d));
  write_file(path,
             text::cat("# ", d.name, ", CUDA driver ", d.driver_version.value_or(0), ", cgp " CGP_VERSION,
                       "; written by cgp tune gemm and CGP_TUNE=full\n", all.text()));
  return all;
}

}  // namespace cgp::kernels
