// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/shader/matrix_probe.h"

#include <array>
#include <bit>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/runtime/log.h"
#include "cgp/shader/shader.h"

namespace cgp::runtime {
namespace {

using vulkan::Location;

std::string probe_ptx(std::string_view type) {
  return text::cat(R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry probe(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 32, 1, 1
{
.reg .b64 %rd<5>;
.reg .b32 %r<9>;
.reg .f32 %f<16>;
ld.param.u64 %rd0, [in];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
mul.wide.u32 %rd2, %r0, 64;
add.u64 %rd3, %rd0, %rd2;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd3];
ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd3+16];
ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3+32];
ld.global.v4.f32 {%f8, %f9, %f10, %f11}, [%rd3+48];
mma.sync.aligned.m16n8k16.row.col.f32.)",
                   type, ".", type,
                   R"(.f32 {%f4, %f5, %f6, %f7}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f0, %f1, %f2, %f3};
mma.sync.aligned.m16n8k16.row.col.f32.)",
                   type, ".", type,
                   R"(.f32 {%f12, %f13, %f14, %f15}, {%r1, %r2, %r3, %r4}, {%r7, %r8}, {%f8, %f9, %f10, %f11};
mul.wide.u32 %rd2, %r0, 32;
add.u64 %rd4, %rd1, %rd2;
st.global.v4.f32 [%rd4], {%f4, %f5, %f6, %f7};
st.global.v4.f32 [%rd4+16], {%f12, %f13, %f14, %f15};
ret;
}
)");
}

/// The kernel's input, and what PTX's two products of it are: of one A with the first and the last 8 columns of B.
struct Product {
  struct Thread {
    std::array<std::uint32_t, 4> a;
    std::array<float, 4> c;
    std::array<std::array<std::uint32_t, 2>, 2> b;
    std::array<float, 4> other_c;
  };
  std::array<Thread, 32> in{};
  std::array<std::array<float, 8>, 32> out{};
};

Product make_product(bool bf16) {
  Product p;
  int a[16][16], b[16][16];
  std::uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return int(state >> 24) % 15 - 7;
  };
  for (auto* matrix : {&a, &b})
    for (auto& row : *matrix)
      for (int& x : row) x = next();
  const auto bits = [&](int x) {
    return std::uint32_t(bf16 ? std::bit_cast<std::uint32_t>(float(x)) >> 16 : half(double(x)).bits);
  };
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::size_t g = lane / 4, q = lane % 4;
    auto& in = p.in[lane];
    for (std::size_t r = 0; r < 4; ++r) {
      const std::size_t row = g + 8 * (r % 2), k = 2 * q + 8 * (r / 2);
      in.a[r] = bits(a[row][k]) | bits(a[row][k + 1]) << 16;
      const std::size_t k_b = 2 * q + 8 * (r % 2), column_b = g + 8 * (r / 2);
      in.b[r / 2][r % 2] = bits(b[k_b][column_b]) | bits(b[k_b + 1][column_b]) << 16;
      for (std::size_t side = 0; side < 2; ++side) {
        int sum = next();
        (side ? in.other_c : in.c)[r] = float(sum);
        for (std::size_t i = 0; i < 16; ++i) sum += a[g + 8 * (r / 2)][i] * b[i][8 * side + 2 * q + r % 2];
        p.out[lane][4 * side + r] = float(sum);
      }
    }
  }
  return p;
}

bool right(const vulkan::DevicePtr& device, bool bf16, const shader::MatrixLayout& layout) try {
  shader::ShaderOptions o;
  o.subgroup_size = 32;
  o.float16 = true;
  (bf16 ? o.matrix_bf16 : o.matrix_f16) = layout;
  const shader::Shader s = shader::translate_spirv(ptx::parse(probe_ptx(bf16 ? "bf16" : "f16")), "probe", o);
  const vulkan::Pipeline pipeline(device, s.spirv, s.entry, s.block_bytes);
  const Product p = make_product(bf16);
  const vulkan::Buffer in(device, sizeof p.in, Location::upload, "a probe's input"),
      out(device, sizeof p.out, Location::download, "a probe's result");
  std::memcpy(in.host(), &p.in, sizeof p.in);
  std::vector<std::byte> block(s.block_bytes);
  const std::uint64_t addresses[] = {in.address(), out.address()};
  std::memcpy(block.data(), addresses, sizeof addresses);
  vulkan::Commands commands(device);
  commands.begin();
  commands.dispatch(pipeline, block, 1, 1, 1);
  commands.submit();
  commands.wait();
  return std::memcmp(out.host(), &p.out, sizeof p.out) == 0;
} catch (const Error& e) {
  log(text::cat(device->physical.name, ": a product of cooperative matrices fails: ", e.what()));
  return false;
}

}  // namespace

std::optional<shader::MatrixLayout> find_matrix_layout(const vulkan::DevicePtr& device, bool bf16) {
  const int columns = bf16 ? device->physical.matrix_bf16 : device->physical.matrix_f16;
  for (int order = 0; columns && order < (columns == 8 ? 2 : 8); ++order) {
    const shader::MatrixLayout layout{columns, (order & 1) == 0, (order & 2) != 0, (order & 4) == 0};
    if (right(device, bf16, layout)) return layout;
  }
  if (columns)
    log(text::cat(device->physical.name, ": cooperative matrices of ", bf16 ? "bf16" : "f16",
                  " lie other than the registers of mma.sync; products go through shuffles"));
  return std::nullopt;
}

}  // namespace cgp::runtime
