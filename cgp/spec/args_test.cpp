// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/args.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "cgp/base/error.h"
#include "cgp/spec/npy.h"

namespace cgp::spec {
namespace {

using Bytes = std::vector<std::uint8_t>;

Spec build(std::initializer_list<const char*> args) {
  Spec spec;
  spec.launches.emplace_back();
  std::size_t index = 0;
  for (const char* a : args) add_argument(spec, a, index++);
  return spec;
}
std::string message_of(std::initializer_list<const char*> args) {
  try {
    build(args);
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing thrown)";
}
Bytes scalar(const char* text) { return build({text}).launches[0].params.at(0).bytes; }

TEST(args, scalars_have_their_own_size) {
  EXPECT_EQ(scalar("u32:7"), (Bytes{7, 0, 0, 0}));
  EXPECT_EQ(scalar("s16:-2"), (Bytes{0xfe, 0xff}));
  EXPECT_EQ(scalar("u64:18446744073709551615"), Bytes(8, 0xff));
  EXPECT_EQ(scalar("s8:-128"), Bytes{0x80});
  EXPECT_EQ(scalar("f32:1.5"), (Bytes{0, 0, 0xc0, 0x3f}));
  EXPECT_EQ(scalar("f32:0x3fc00000"), (Bytes{0, 0, 0xc0, 0x3f}));
  EXPECT_EQ(scalar("f16:-2"), (Bytes{0, 0xc0}));
  EXPECT_EQ(scalar("bf16:1"), (Bytes{0x80, 0x3f}));
}

TEST(args, scalars_out_of_range_are_refused) {
  for (const char* text :
       {"u8:256", "s8:128", "s8:-129", "u32:-1", "u32:1.5", "u32:", "f32:x", "f16:0x12345"})
    EXPECT_THROW(build({text}), ArgumentError) << text;
}

TEST(args, buffers_from_sizes_and_generators) {
  const Spec s = build({"out:f32:1024=y.npy", "scratch:u8:4096", "in:u32:8:zero", "in:s32:3:{\"iota\":[5,2]}",
                        "inout:f64:2:[1,2]=z.bin", "buf:2+16", "out:u8:3"});
  ASSERT_EQ(s.buffers.size(), 6u);
  EXPECT_EQ(s.buffers[0].output_path, "y.npy");
  EXPECT_EQ(s.buffers[0].bytes(), 4096u);
  EXPECT_EQ(s.buffers[1].role, Role::scratch);
  EXPECT_EQ(s.buffers[3].init->kind, Init::Kind::iota);
  EXPECT_EQ(s.buffers[4].output_path, "z.bin");
  EXPECT_EQ(s.buffers[4].init->values.size(), 2u);
  const ParamSpec& offset = s.launches[0].params[5];
  EXPECT_EQ(offset.addresses[0].buffer, 2u);
  EXPECT_EQ(offset.addresses[0].offset, 16u);
  EXPECT_EQ(s.buffers[5].name, "arg6");
}

TEST(args, buffers_from_files_take_size_and_shape_from_them) {
  const std::string path = testing::TempDir() + "cgp_args_test.npy";
  HostArray a{DType::f32, {2, 3}, Bytes(24)};
  write_array(path, a);
  const Spec s = build(
      {("in:f32:" + path).c_str(), ("inout:f32:" + path).c_str(), ("inout:f32:" + path + "=o.npy").c_str()});
  EXPECT_EQ(s.buffers[0].count, 6u);
  EXPECT_EQ(s.buffers[0].output_path, "");
  EXPECT_EQ(s.buffers[1].output_path, path);
  EXPECT_EQ(s.buffers[2].output_path, "o.npy");
  EXPECT_EQ(s.buffers[2].shape, a.shape);
  EXPECT_THROW(build({("in:u32:" + path).c_str()}), ArgumentError);
  std::remove(path.c_str());
}

TEST(args, structs_and_tensor_maps_name_buffers_by_argument) {
  const Spec s =
      build({"in:f32:256:zero", "{\"struct\":{\"size\":16,\"fields\":[{\"offset\":8,\"buf\":0}]}}",
             "{\"tensormap\":{\"buf\":\"arg0\",\"dims\":[64,4],\"strides\":[256],\"box\":[32,4]}}"});
  EXPECT_EQ(s.launches[0].params[1].addresses[0].at, 8u);
  EXPECT_EQ(s.launches[0].params[2].kind, ParamSpec::Kind::tensor_map);
}

TEST(args, errors_quote_the_argument) {
  EXPECT_NE(message_of({"u32:1", "onut:f32:3"}).find("--arg 1 \"onut:f32:3\""), std::string::npos);
  EXPECT_NE(message_of({"ni:f32:3"}).find("did you mean in?"), std::string::npos);
  EXPECT_NE(message_of({"buf:0"}).find("must be an earlier buffer"), std::string::npos);
  EXPECT_NE(message_of({"in:f32:1024"}).find("file or a generator"), std::string::npos);
  EXPECT_NE(message_of({"in:f99:1024"}).find("f99"), std::string::npos);
  EXPECT_NE(message_of({"out:f32:y.npy"}).find("number of elements"), std::string::npos);
  EXPECT_NE(message_of({"in:f32:4:zero", "{\"struct\":{\"size\":4,\"fields\":[{\"offset\":0,\"buf\":0}]}}"})
                .find("inside its struct"),
            std::string::npos);
  EXPECT_NE(message_of({"7"}).find("no ':'"), std::string::npos);
}

TEST(args, extents) {
  EXPECT_EQ(parse_extents("4", "--grid"), (Dim3{4, 1, 1}));
  EXPECT_EQ(parse_extents("4,2,3", "--grid"), (Dim3{4, 2, 3}));
  for (const char* text : {"", "0", "4,", "1,2,3,4", "x", "-1", "4294967296"})
    EXPECT_THROW(parse_extents(text, "--grid"), ArgumentError) << text;
}

}  // namespace
}  // namespace cgp::spec
