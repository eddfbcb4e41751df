// SPDX-License-Identifier: Apache-2.0
// Tensor copies in the modes gather4, scatter4 and im2col, against plain loops.
#include <gmock/gmock.h>

#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using text::cat;

struct alignas(64) MapBytes {
  std::array<std::byte, 128> bytes;
};

// Loads `bytes` with `instruction` (%s: shared, %m: map, %b: mbarrier, %c: the registers of `coordinates`)
// and copies shared memory out; or fills shared memory from `po` first and stores with `instruction`.
std::string kernel(const std::string& instruction, const std::vector<int>& coordinates, int bytes,
                   bool load) {
  std::string s =
      cat(".visible .entry k(.param .align 64 .b8 map[128], .param .u64 po) {\n .reg .u64 %m, %o, %g;\n"
          " .reg .u32 %s, %b, %t, %v, %a; .reg .s32 %c<8>; .reg .pred %p; .reg .b16 %h<4>;\n"
          " .shared .align 1024 .b8 buf[",
          bytes, "]; .shared .align 8 .b64 bar;\n",
          " mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %o, [po]; mov.u32 %s, buf;\n"
          " mov.u32 %b, bar; mov.u32 %t, %tid.x;\n");
  for (std::size_t d = 0; d < coordinates.size(); ++d)
    s += cat(" mov.s32 %c", d, ", ", coordinates[d], ";\n");
  const std::string copy = cat("COPY: mad.lo.u32 %a, %t, 4, %s; mad.wide.u32 %g, %t, 4, %o;\n",
                               load ? " ld.shared.u32 %v, [%a]; st.global.u32 [%g], %v;\n"
                                    : " ld.global.u32 %v, [%g]; st.shared.u32 [%a], %v;\n",
                               " add.u32 %t, %t, 32; setp.lt.u32 %p, %t, ", bytes / 4, "; @%p bra COPY;\n");
  if (load)
    s += cat(
        " setp.ne.u32 %p, %t, 0; @%p bra GO;\n mbarrier.init.shared::cta.b64 [%b], 1;\n"
        " fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], ",
        bytes, ";\n ", instruction,
        "\nGO: bar.sync 0;\nW: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;\n", copy);
  else
    s += cat(copy,
             " fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0;\n"
             " @%p bra END;\n ",
             instruction, "\n cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:\n");
  return s + " ret;\n}\n";
}

TEST(TmaModes, Gather4AndScatter4) {
  Kit kit("sm_100a");
  const int columns = 64, rows = 20, width = 32;
  std::vector<std::uint16_t> in(columns * rows);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint16_t(i + 1);
  TensorMap m;
  m.type = TensorMapType::u16;
  m.rank = 2;
  m.address = kit.upload(in, "tensor");
  m.dims = {columns, rows, 1, 1, 1};
  m.strides = {0, columns * 2, 0, 0, 0};
  m.box = {width, 1, 1, 1, 1};
  const std::vector<int> c = {8, 3, 17, 99, 0};  // columns from 8; one of the four rows is outside
  const std::uint64_t out = kit.machine.alloc(width * 8, "out");
  EXPECT_CLEAN(kit.launch(
      kernel("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%s], "
             "[%m, {%c0, %c1, %c2, %c3, %c4}], [%b];",
             c, width * 8, true),
      {}, {32, 1, 1}, Params().add(MapBytes{m.encode()}).add(out)));
  const auto got = kit.download<std::uint16_t>(out, width * 4);
  for (int r = 0; r < 4; ++r)
    for (int x = 0; x < width; ++x) {
      const int row = c[std::size_t(r) + 1];
      EXPECT_EQ(got[std::size_t(r * width + x)], row < rows ? in[std::size_t(row * columns + 8 + x)] : 0)
          << r << " " << x;
    }
  std::vector<std::uint16_t> fresh(width * 4);
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i] = std::uint16_t(50000 + i);
  const std::uint64_t from = kit.upload(fresh, "rows");
  EXPECT_CLEAN(kit.launch(kernel("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
                                 "[%m, {%c0, %c1, %c2, %c3, %c4}], [%s];",
                                 c, width * 8, false),
                          {}, {32, 1, 1}, Params().add(MapBytes{m.encode()}).add(from)));
  auto want = in;
  for (int r = 0; r < 4; ++r)
    for (int x = 0; x < width; ++x)
      if (const int row = c[std::size_t(r) + 1]; row < rows)
        want[std::size_t(row * columns + 8 + x)] = fresh[std::size_t(r * width + x)];
  EXPECT_EQ(kit.download<std::uint16_t>(m.address, in.size()), want);
}

// A 3x3 convolution over NHWC with padding 1: the pixel box starts at -1 and ends one before the last pixel,
// so that with the filter's offsets (0..2) every output pixel finds its inputs.
TEST(TmaModes, Im2colIsTheInputOfAConvolution) {
  const int channels = 8, width = 6, height = 5, batch = 2, pixels = 40;
  std::vector<float> in(std::size_t(channels * width * height * batch));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i + 1);
  for (const int stride : {1, 2})
    for (const auto& [s, r] : {std::pair{0, 0}, {1, 2}, {2, 1}}) {
      Kit kit;
      TensorMap m;
      m.type = TensorMapType::f32;
      m.rank = 4;
      m.address = kit.upload(in, "input");
      m.dims = {channels, width, height, batch, 1};
      m.strides = {0, channels * 4, channels * width * 4, channels * width * height * 4, 0};
      m.box = {4, 1, 1, 1, 1};  // four of the channels
      m.element_strides = {1, std::uint32_t(stride), std::uint32_t(stride), 1, 1};
      m.im2col = true;
      m.pixels = pixels;
      m.lower = {-1, -1, 0};
      m.upper = {-1, -1, 0};
      const std::vector<int> c = {4, -1 + stride, -1, 0};  // channels from 4, the second output pixel
      const std::uint64_t out = kit.machine.alloc(pixels * 16, "out");
      EXPECT_CLEAN(kit.launch(
          kernel(cat("mov.b16 %h0, ", s, "; mov.b16 %h1, ", r,
                     ";\n cp.async.bulk.tensor.4d.shared::cluster.global.im2col",
                     ".mbarrier::complete_tx::bytes [%s], [%m, {%c0, %c1, %c2, %c3}], [%b], {%h0, %h1};"),
                 c, pixels * 16, true),
          {}, {32, 1, 1}, Params().add(MapBytes{m.encode()}).add(out)));
      const auto got = kit.download<float>(out, pixels * 4);
      const int out_width = (width + stride - 1) / stride, out_height = (height + stride - 1) / stride;
      for (int k = 0; k < pixels; ++k) {
        const int p = k + 1, n = p / (out_width * out_height);
        const int y = p / out_width % out_height * stride - 1 + r, x = p % out_width * stride - 1 + s;
        const bool inside = n < batch && y >= 0 && y < height && x >= 0 && x < width;
        for (int ch = 0; ch < 4; ++ch)
          ASSERT_EQ(got[std::size_t(k * 4 + ch)],
                    inside ? in[std::size_t(((n * height + y) * width + x) * channels + 4 + ch)] : 0.0f)
              << "stride " << stride << " filter " << s << "," << r << " pixel " << k;
      }
    }
}

TEST(TmaModes, AMapOfAnotherModeIsReported) {
  Kit kit;
  TensorMap m;
  m.rank = 4;
  m.address = kit.upload(std::vector<float>(64), "t");
  m.dims = {4, 4, 2, 2, 1};
  m.strides = {0, 16, 64, 128, 0};
  m.box = {4, 1, 1, 1, 1};
  const std::uint64_t out = kit.machine.alloc(16, "out");
  const Result r = kit.launch(
      kernel("mov.b16 %h0, 0; "
             "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%s], "
             "[%m, {%c0, %c1, %c2, %c3}], [%b], {%h0, %h0};",
             {0, 0, 0, 0}, 16, true),
      {}, {32, 1, 1}, Params().add(MapBytes{m.encode()}).add(out));
  EXPECT_EQ(first_class(r), "tensormap");
}

// A map that a warp makes in shared memory, publishes in global memory and uses. `early` and `late` stand
// before and behind the publication.
std::string made_map(const std::string& early, const std::string& late) {
  return cat(
      ".visible .entry k(.param .u64 from, .param .u64 to, .param .u64 data, .param .u64 out) {\n"
      " .reg .u64 %f, %m, %d, %o, %x; .reg .u32 %t, %s, %b, %v, %a; .reg .s32 %c; .reg .pred %p, %q, %one;\n"
      " .shared .align 128 .b8 sm[128], buf[128]; .shared .align 8 .b64 bar;\n"
      " ld.param.u64 %f, [from]; ld.param.u64 %m, [to]; ld.param.u64 %d, [data]; ld.param.u64 %o, [out];\n"
      " mov.u32 %t, %tid.x; mov.u32 %s, sm; mov.u32 %b, bar; setp.ne.u32 %p, %t, 0; setp.eq.u32 %one, %t, "
      "1;\n"
      " mad.wide.u32 %x, %t, 4, %f; ld.global.u32 %v, [%x]; mad.lo.u32 %a, %t, 4, %s; st.shared.u32 [%a], "
      "%v;\n"
      " @!%p mbarrier.init.shared::cta.b64 [%b], 1;\n fence.mbarrier_init.release.cluster;\n"
      " bar.warp.sync -1;\n @%p bra MADE;\n"
      " tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%s], %d;\nMADE: bar.warp.sync -1;\n ",
      early,
      "\n tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%m], [%s], "
      "128;\n ",
      late,
      "\n @%p bra WAIT;\n mov.s32 %c, 4; mov.u32 %a, buf;\n"
      " mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 64;\n"
      " cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%m, {%c}], [%b];\n"
      "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [%b], 0; @!%q bra WAIT;\n"
      " and.b32 %v, %t, 15; mov.u32 %a, buf; mad.lo.u32 %a, %v, 4, %a; ld.shared.u32 %v, [%a];\n"
      " mad.wide.u32 %x, %t, 4, %o; st.global.u32 [%x], %v;\n ret;\n}\n");
}

TEST(TmaModes, AMapMadeByTheKernelNeedsItsProxyFence) {
  const std::string acquire = "fence.proxy.tensormap::generic.acquire.gpu [%m], 128;";
  const auto run = [&](const std::string& early, const std::string& late) {
    Kit kit;
    std::vector<std::uint32_t> data(32);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::uint32_t(100 + i);
    TensorMap m;
    m.type = TensorMapType::u32;
    m.address = kit.upload(std::vector<std::uint32_t>(32), "model");
    m.dims[0] = 32;
    m.box[0] = 16;
    const auto bytes = m.encode();
    const std::uint64_t from = kit.upload(std::vector<std::byte>(bytes.begin(), bytes.end()), "from");
    const std::uint64_t to = kit.machine.alloc(128, "to", 128), out = kit.machine.alloc(128, "out");
    const std::uint64_t at = kit.upload(data, "data");
    Result r = kit.launch(made_map(early, late), {}, {32, 1, 1}, Params().add(from).add(to).add(at).add(out));
    for (std::size_t l = 0; l < 32; ++l)
      EXPECT_EQ(kit.download<std::uint32_t>(out, 32)[l], 104 + l % 16) << late;
    return r;
  };
  EXPECT_CLEAN(run("", acquire));
  // In a lane that the copy's is ordered behind.
  EXPECT_CLEAN(run("", "@%one " + acquire + " bar.warp.sync -1;"));
  for (const Result& r : {run("", ""), run(acquire, ""), run("", "@%one " + acquire)}) {
    EXPECT_EQ(first_class(r), "race.proxy");
    EXPECT_THAT(findings(r), ::testing::HasSubstr("fence.proxy.tensormap"));
  }
}

}  // namespace
}  // namespace cgp::emu
