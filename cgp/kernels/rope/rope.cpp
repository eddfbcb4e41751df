// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding.
//   who      a thread has one access of pairs of a token and goes through some of its heads
//   memory   x read once, y written once; angles are computed or read once for all heads of a thread
//   needs    any device for f32 and f16, sm_80 for bf16
#include "cgp/kernels/rope/rope.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Access, row::Floats, row::Format;

constexpr int kThreads = 128;
constexpr std::uint64_t kHeadsEach = 8;  // heads of a thread
constexpr std::uint64_t kMostTableElements = 1ull << 28;

struct RopeConfig {
  DType x{}, y{};
  int elements = 1;  ///< pairs of an access (half form), elements of an access (interleaved: even)
  bool interleaved = false, inverse = false, tables = false;
  bool copies_rest = false;  ///< elements beyond the rotary part
  int position_bytes = 0;    ///< 0: positions are counted, 4 or 8: given
  float magnitude = 1;
  std::vector<std::uint64_t> frequencies{};  ///< revolutions per position, in 2^-64; none with tables
  std::string frequency_hash{};              ///< of frequencies and magnitude
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("x", "", c.x);
    v.type("y", "y_", c.y, c.x);
    v.number("elements", "vec", c.elements, 1);
    v.flag("interleaved", c.interleaved);
    v.flag("inverse", c.inverse);
    v.flag("tables", c.tables);
    v.flag("copy_rest", c.copies_rest);
    v.number("position_bytes", "positions", c.position_bytes, 0);
    v.rest("frequency_hash", "freq", c.frequency_hash);
  }
};

class Rotation {
 public:
  Rotation(Kernel& k, const RopeConfig& b) : b_(b) {
    if (!b.tables) frequencies_.push_back(k.constant<u64>(b.frequencies));
  }
  /// cos and sin of pair `pair` and the next count - 1.
  void angles(const Val<u64>& position, const Val<u32>& pair, int count, const In<f32>& cos,
              const In<f32>& sin, const Val<u64>& half, const Val<pred>& inside, Floats& c, Floats& s) const {
    const Val<f32> nan(std::numeric_limits<float>::quiet_NaN());
    for (int i = 0; i < count; ++i) {
      const auto at = pair + std::uint32_t(i);
      if (b_.tables) {
        const auto index = position * half + to<u64>(at);
        c.push_back(cos.ld_if<1>(inside, index, nan)[0]);
        s.push_back(sin.ld_if<1>(inside, index, nan)[0]);
        continue;
      }
      const auto revolution = frequencies_[0].ld(at) * position;  // mod 2^64: mod one revolution
      const auto part =
          to<f32>(bits<s32>(to<u32>((revolution + 0x80000000ull) >> 32)));  // of 2^32, at most half of it
      const auto angle = part * 1.4629180792671596e-9f;                     // 2 pi / 2^32
      c.push_back(dsl::cos<approx>(angle) * b_.magnitude);
      s.push_back(dsl::sin<approx>(angle) * b_.magnitude);
    }
  }

 private:
  const RopeConfig& b_;
  std::vector<Ptr<const_, const u64>> frequencies_;
};

void rotate(const RopeConfig& b, const Val<f32>& x, const Val<f32>& y, const Val<f32>& c, const Val<f32>& s,
            Floats& first, Floats& second) {
  const auto sine = b.inverse ? -s : s;
  first.push_back(fma(x, c, -(y * sine)));
  second.push_back(fma(x, sine, y * c));
}

template <template <class> class V>
struct RopeArgs {
  V<In<b8>> x;
  V<Out<b8>> y;
  V<In<f32>> cos, sin;
  V<In<b8>> positions;
  V<u64> tokens;
  V<u32> heads, dim, rotary;
  V<u64> sequence, offset;
  V<u64> limit;                             ///< positions that the tables have
  V<u64> x_token, x_head, y_token, y_head;  ///< strides, in elements
};

void rope_tokens(Kernel& k, RopeConfig b, RopeArgs<DeviceArg> p) {
  k.block(kThreads);
  const auto e = std::uint32_t(b.elements);
  // Accesses that are rotated, then those beyond the rotary part, which are copied.
  const auto rotating = b.interleaved ? p.rotary / e : p.rotary / (2 * e);
  const auto per_token = b.copies_rest ? rotating + (p.dim - p.rotary) / e : rotating;
  const auto groups = (p.heads + std::uint32_t(kHeadsEach - 1)) / std::uint32_t(kHeadsEach);
  const auto index = to<u64>(k.ctaid_x()) * std::uint64_t(kThreads) + to<u64>(k.tid());
  const auto work = to<u64>(per_token) * to<u64>(groups);
  const auto token = index / work;
  const auto rest = to<u32>(index - token * work);
  const auto group = rest / per_token, access = rest - group * per_token;
  const Val<pred> here = token < p.tokens;
  const auto position = [&]() -> Val<u64> {
    if (b.position_bytes == 8) return bits<u64>(p.positions.as<s64>().ld_if<1>(here, token, Val<s64>(0))[0]);
    if (b.position_bytes == 4)
      return bits<u64>(to<s64>(p.positions.as<s32>().ld_if<1>(here, token, Val<s32>(0))[0]));
    return p.offset + token % p.sequence;
  }();
  const Val<pred> rotates = access < rotating;
  const auto first_pair = b.interleaved ? access * (e / 2) : access * e;
  Floats c, s;
  const Val<pred> known = here & rotates & (position < p.limit);
  Rotation(k, b).angles(position, select(rotates, first_pair, Val<u32>(0)),
                        b.interleaved ? b.elements / 2 : b.elements, p.cos, p.sin, to<u64>(p.rotary / 2),
                        known, c, s);
  const auto copied = p.rotary + (access - rotating) * e;
  const auto low = select(rotates, access * e, copied);
  const Format fx{b.x, b.elements}, fy{b.y, b.elements};
  const auto half_bytes = [&](DType t) { return to<u64>(p.rotary / 2) * std::uint64_t(cgp::bytes(t)); };
  const auto head0 = group * std::uint32_t(kHeadsEach);
  const auto end = min(p.heads, head0 + std::uint32_t(kHeadsEach));
  k.loop(range(head0, select(here, end, Val<u32>(0)), Val<u32>(1)), [&](Val<u32> head) {
    const auto from = p.x.at((token * p.x_token + to<u64>(head) * p.x_head + to<u64>(low)) *
                             std::uint64_t(cgp::bytes(b.x)));
    const auto to_y = p.y.at((token * p.y_token + to<u64>(head) * p.y_head + to<u64>(low)) *
                             std::uint64_t(cgp::bytes(b.y)));
    const Val<pred> all = here;
    const auto a = row::load(fx, from, 0, all);
    const auto fa = row::floats(fx, a);
    Floats out, upper;
    if (b.interleaved) {
      for (std::size_t i = 0; i < fa.size(); i += 2) {
        Floats p, q;
        rotate(b, fa[i], fa[i + 1], c[i / 2], s[i / 2], p, q);
        out.push_back(select(rotates, p[0], fa[i])), out.push_back(select(rotates, q[0], fa[i + 1]));
      }
      row::store(fy, to_y, 0, all, row::pack(fy, out));
      return;
    }
    const auto second = row::load(fx, from.at(half_bytes(b.x)), 0, rotates);
    const auto fb = row::floats(fx, second);
    for (std::size_t i = 0; i < fa.size(); ++i) {
      Floats p, q;
      rotate(b, fa[i], fb[i], c[i], s[i], p, q);
      out.push_back(select(rotates, p[0], fa[i])), upper.push_back(q[0]);
    }
    row::store(fy, to_y, 0, all, row::pack(fy, out));
    row::store(fy, to_y.at(half_bytes(b.y)), 0, rotates, row::pack(fy, upper));
  });
}

[[noreturn]] void bad(std::string what, std::string why) {
  throw ArgumentError(ErrorText{"rope: " + what, {}, std::move(why), {}});
}

std::string hash_of(const RopeConfig& c) {
  std::uint64_t h = 1469598103934665603ull;
  const auto add = [&](std::uint64_t v) { h = (h ^ v) * 1099511628211ull, h ^= h >> 29; };
  for (std::uint64_t v : c.frequencies) add(v);
  add(std::bit_cast<std::uint32_t>(c.magnitude));
  return text::hex(h).substr(2);
}

struct Problem {
  Rope r;
  RopeConfig build;
  std::uint64_t limit;
};

Problem checked(Rope r) {
  const row::Checker c{"rope"};
  if (r.tokens && (!r.dim || r.dim % 2))
    c.fail("dim", "must be even and at least 2", text::cat("dim = ", r.dim));
  auto& f = r.frequencies;
  if (!f.rotary) f.rotary = r.dim;
  if (f.rotary % 2 || f.rotary > r.dim)
    c.fail("rotary", "must be even and at most dim", text::cat("rotary = ", f.rotary, ", dim = ", r.dim));
  if (r.heads > 0x7fffffff || r.dim > 0x7fffffff)
    c.fail("heads", "and dim must be below 2^31", "they are not");
  if (!r.sequence) r.sequence = std::max<std::uint64_t>(r.tokens, 1);
  if (!r.x_head) r.x_head = r.dim;
  if (!r.y_head) r.y_head = r.dim;
  if (!r.x_token) r.x_token = r.heads * r.x_head;
  if (!r.y_token) r.y_token = r.heads * r.y_head;
  c.present("x", r.x, row::kFloats, false), c.present("y", r.y, row::kFloats, true);
  const auto holds = [&](const char* name, const View& v, std::uint64_t token, std::uint64_t head) {
    if (!r.tokens || !r.heads) return;
    const std::uint64_t need = (r.tokens - 1) * token + (r.heads - 1) * head + r.dim;
    if (v.elements < need)
      c.fail(name, "must hold all heads of all tokens",
             text::cat("that needs ", need, " elements, it has ", v.elements));
  };
  holds("x", r.x, r.x_token, r.x_head), holds("y", r.y, r.y_token, r.y_head);
  RopeConfig b;
  b.x = r.x.dtype, b.y = r.y.dtype, b.interleaved = r.interleaved, b.inverse = r.inverse;
  b.copies_rest =
      f.rotary < r.dim && (r.x.address != r.y.address || r.x_token != r.y_token || r.x_head != r.y_head);
  b.tables = r.cos.given || r.sin.given;
  std::uint64_t limit = ~0ull;
  if (b.tables) {
    c.present("cos", r.cos, {DType::f32}, false), c.present("sin", r.sin, {DType::f32}, false);
    limit = std::min(r.cos.elements, r.sin.elements) / (f.rotary / 2);
    if (!r.positions.given && r.tokens && r.offset + std::min(r.sequence, r.tokens) > limit)
      c.fail("cos", "must reach the last position",
             text::cat("positions up to ", r.offset + std::min(r.sequence, r.tokens) - 1,
                       ", the tables have ", limit));
  } else if (f.rotary) {
    b.magnitude = float(rope_magnitude(f));
    for (long double w : rope_frequencies(f)) {
      const long double part = w / 6.283185307179586476925286766559005768L;  // below 1: at most 1 radian
      b.frequencies.push_back(std::uint64_t(part * 18446744073709551616.0L + 0.5L));
    }
    b.frequency_hash = hash_of(b);
  }
  if (r.positions.given) {
    c.present("positions", r.positions, {DType::s32, DType::s64}, false),
        c.vector("positions", r.positions, r.tokens);
    b.position_bytes = cgp::bytes(r.positions.dtype);
  }
  // 16-byte accesses where every head starts at a multiple of them.
  const int e = 16 / std::min(cgp::bytes(b.x), cgp::bytes(b.y));
  const auto unit = std::uint64_t(e);
  const std::uint64_t part = b.interleaved ? f.rotary : f.rotary / 2;
  bool wide = part % unit == 0 && (!b.copies_rest || (r.dim - f.rotary) % unit == 0);
  for (std::uint64_t p : {r.x_token, r.x_head, r.y_token, r.y_head}) wide = wide && p % unit == 0;
  wide = wide && r.x.address % 16 == 0 && r.y.address % 16 == 0;
  b.elements = wide ? e : b.interleaved ? 2 : 1;
  if (!wide && b.interleaved) {  // a pair is one access where it is aligned as one, which even strides give
    bool even = r.x.address % (2u * unsigned(cgp::bytes(b.x))) == 0 &&
                r.y.address % (2u * unsigned(cgp::bytes(b.y))) == 0;
    for (std::uint64_t p : {r.x_token, r.x_head, r.y_token, r.y_head}) even = even && p % 2 == 0;
    if (!even)
      c.fail("x", "interleaved pairs must start at multiples of two elements",
             "a stride or an address is odd");
  }
  return {std::move(r), std::move(b), limit};
}

Variant make(const RopeConfig& c) {
  return config_variant("rope", c, c.x == DType::bf16 || c.y == DType::bf16 ? 80 : 75, rope_tokens);
}

}  // namespace

std::vector<long double> rope_frequencies(const RopeFrequencies& f) {
  if (!(f.base > 1)) bad("base must be above 1", text::cat("base = ", f.base));
  if (!(f.factor >= 1)) bad("factor must be at least 1", text::cat("factor = ", f.factor));
  if (f.rotary < 2 || f.rotary % 2)
    bad("rotary must be even and at least 2", text::cat("rotary = ", f.rotary));
  const bool blends = f.scaling == RopeScaling::yarn || f.scaling == RopeScaling::llama3;
  if (blends && !(f.original_positions > 0))
    bad("original_positions must be given", text::cat("original_positions = ", f.original_positions));
  const long double d = static_cast<long double>(f.rotary), pi2 = 6.283185307179586476925286766559L;
  long double base = f.base;
  if (f.scaling == RopeScaling::ntk && f.rotary > 2)
    base *= std::pow(static_cast<long double>(f.factor), d / (d - 2));
  // yarn: the pair that makes `beta` revolutions over the original context.
  const auto pair = [&](double beta) {
    return d * std::log(f.original_positions / (static_cast<long double>(beta) * pi2)) / (2 * std::log(base));
  };
  const long double from = std::max(0.0L, std::floor(pair(f.beta_fast))),
                    till = std::min(d - 1, std::ceil(pair(f.beta_slow)));
  std::vector<long double> w;
  for (std::uint64_t i = 0; i < f.rotary / 2; ++i) {
    const long double plain = std::pow(base, -2 * static_cast<long double>(i) / d), slow = plain / f.factor;
    if (f.scaling == RopeScaling::linear) {
      w.push_back(slow);
    } else if (f.scaling == RopeScaling::yarn) {
      const long double width = till > from ? till - from : 0.001L;
      const long double ramp = std::clamp((static_cast<long double>(i) - from) / width, 0.0L, 1.0L);
      w.push_back(slow * ramp + plain * (1 - ramp));
    } else if (f.scaling == RopeScaling::llama3) {
      const long double revolutions = f.original_positions * plain / pi2;  // over the original context
      const long double smooth =
          std::clamp((revolutions - f.low_frequency) / (f.high_frequency - f.low_frequency), 0.0L, 1.0L);
      w.push_back((1 - smooth) * slow + smooth * plain);
    } else {
      w.push_back(plain);
    }
  }
  return w;
}

double rope_magnitude(const RopeFrequencies& f) {
  return f.scaling == RopeScaling::yarn ? 0.1 * std::log(f.factor) + 1 : 1;
}

RopeTables rope_tables(const RopeFrequencies& f, std::uint64_t positions) {
  const auto w = rope_frequencies(f);
  if (positions > kMostTableElements / w.size())
    throw ArgumentError({"rope: tables have at most 2^28 elements",
                         {},
                         text::cat(positions, " positions of ", w.size(), " pairs were asked for"),
                         "leave the tables out: the kernel computes angles at any position"});
  const double m = rope_magnitude(f);
  RopeTables t;
  for (std::uint64_t p = 0; p < positions; ++p)
    for (long double v : w) {
      const long double angle = v * static_cast<long double>(p);
      t.cos.push_back(float(std::cos(angle) * m)), t.sin.push_back(float(std::sin(angle) * m));
    }
  return t;
}

void rope(runtime::Stream& s, const Rope& given) {
  const auto p = checked(given);
  const auto& r = p.r;
  const auto& b = p.build;
  const auto e = std::uint64_t(b.elements);
  const std::uint64_t rotary = r.frequencies.rotary;
  const std::uint64_t rotating = b.interleaved ? rotary / e : rotary / (2 * e);
  const std::uint64_t per_token = rotating + (b.copies_rest ? (r.dim - rotary) / e : 0);
  const std::uint64_t work = r.tokens * per_token * ((r.heads + kHeadsEach - 1) / kHeadsEach);
  if (work == 0) return;
  launch::launch_kernel(s, load(s.device(), make(b)), runtime::grid_for(work, kThreads),
                        RopeArgs<launch::HostArg>{.x = r.x.arg(),
                                                  .y = r.y.arg(),
                                                  .cos = r.cos.arg(),
                                                  .sin = r.sin.arg(),
                                                  .positions = r.positions.arg(),
                                                  .tokens = r.tokens,
                                                  .heads = std::uint32_t(r.heads),
                                                  .dim = std::uint32_t(r.dim),
                                                  .rotary = std::uint32_t(rotary),
                                                  .sequence = r.sequence,
                                                  .offset = r.offset,
                                                  .limit = p.limit,
                                                  .x_token = r.x_token,
                                                  .x_head = r.x_head,
                                                  .y_token = r.y_token,
                                                  .y_head = r.y_head});
}

// ---------------------------------------------------------------- catalogue
namespace {

constexpr std::string_view kScalings[] = {"none", "linear", "ntk", "yarn", "llama3"};

KernelEntry entry() {
  KernelEntry e;
  e.name = "rope", e.summary = "rotary position embedding of [tokens, heads, dim]";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"tokens", "512", "tokens"},
               {"heads", "8", "heads"},
               {"dim", "128", "elements of a head"},
               {"rotary", "0", "elements that are rotated; 0: all"},
               {"interleaved", "0", "pairs (2i, 2i+1) instead of (i, i + rotary/2)"},
               {"inverse", "0", "the gradient"},
               {"tables", "0", "angles from tables"},
               {"offset", "0", "position of the first token"},
               {"base", "10000", "base of the frequencies"},
               {"scaling", "none", "none, linear, ntk, yarn or llama3"},
               {"factor", "1", "of the scaling"}};
  e.inputs = {"x"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::bf16, DType::f32})
      for (bool interleaved : {false, true})
        for (bool tables : {false, true})
          for (std::uint64_t dim : {128, 36}) {
            Rope r;
            r.x = r.y = View::stand_in(t);
            if (tables) r.cos = r.sin = View::stand_in(DType::f32);
            r.tokens = r.heads = 2, r.dim = dim, r.interleaved = interleaved;
            all.push_back(make(checked(r).build));
          }
    return images(all, arch);
  };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    Rope r;
    const DType t = row::float_option(o, "dtype");
    r.tokens = o.size("tokens"), r.heads = o.size("heads"), r.dim = o.size("dim"),
    r.offset = o.size("offset");
    r.interleaved = o.flag("interleaved"), r.inverse = o.flag("inverse");
    auto& f = r.frequencies;
    f.rotary = o.size("rotary") ? o.size("rotary") : r.dim;
    f.base = o.real("base"), f.factor = o.real("factor"), f.original_positions = 256;
    const auto scaling = o.choice("scaling", kScalings);
    for (int i = 0; i < 5; ++i)
      if (kScalings[i] == scaling) f.scaling = RopeScaling(i);
    auto c = std::make_unique<row::TensorCase>(d);
    r.x = c->input("x", input_or_random(given, "x", t, {r.tokens, r.heads, r.dim}, seed));
    if (o.flag("tables")) {
      const auto tables = rope_tables(f, std::max(r.offset + r.tokens, r.offset));  // overflow: too many
      const auto upload = [&](const char* name, const std::vector<float>& v) {
        HostArray a(DType::f32, {r.offset + r.tokens, f.rotary / 2});
        std::copy(v.begin(), v.end(), typed<float>(a).begin());
        return c->input(name, std::move(a));
      };
      r.cos = upload("cos", tables.cos), r.sin = upload("sin", tables.sin);
    }
    r.y = c->output("y", t, {r.tokens, r.heads, r.dim});
    c->runs({make(checked(r).build)}, "one thread an access, all heads");
    c->flops = 6.0 * double(r.tokens * r.heads * r.dim);
    c->run = [r](runtime::Stream& s) { rope(s, r); };
    c->oracle = [r, f, t](const row::TensorCase& in) {
      row::Expected y{"y", {}, {}};
      const auto& x = in.host("x");
      const auto w = rope_frequencies(f);
      const double m = rope_magnitude(f);
      const std::uint64_t half = f.rotary / 2;
      for (std::uint64_t row = 0; row < r.tokens * r.heads; ++row)
        for (std::uint64_t i = 0; i < r.dim; ++i) {
          const double v = x.at(row * r.dim + i);
          if (i >= f.rotary) {
            y.want.push_back(v), y.tolerance.push_back(0);
            continue;
          }
          const std::uint64_t pair = r.interleaved ? i / 2 : i % half;
          const bool first = r.interleaved ? i % 2 == 0 : i < half;
          const std::uint64_t other = r.interleaved ? (i ^ 1) : first ? i + half : i - half;
          const double o = x.at(row * r.dim + other);
          const long double angle = w[pair] * static_cast<long double>(r.offset + row / r.heads);
          const double cosine = m * double(std::cos(angle)),
                       sine = (r.inverse ? -m : m) * double(std::sin(angle));
          const double want = first ? v * cosine - o * sine : v * cosine + o * sine;
          y.want.push_back(want);
          y.tolerance.push_back((std::fabs(v) + std::fabs(o)) * m * 1.2e-6 +
                                std::fabs(want) * unit_roundoff(t) + 1e-30 + (t == DType::f16 ? 0x1p-24 : 0));
        }
      return std::vector<row::Expected>{y};
    };
    return c;
  };
  return e;
}

}  // namespace

KernelEntry rope_entry() { return entry(); }

}  // namespace cgp::kernels
