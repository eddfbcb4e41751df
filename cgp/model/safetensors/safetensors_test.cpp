// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"

namespace cgp::model {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string file_of(const std::string& header, std::size_t data) {
  std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, 'd');
}

std::string error_of(const std::string& header, std::size_t data = 0) {
  std::string file = file_of(header, data);
  try {
    Safetensors::parse(bytes_of(file), "x.safetensors");
  } catch (const ParseError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  std::string path = testing::TempDir() + "all.safetensors";
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::string> data;
  data.reserve(safetensors_types().size());
  for (const SafetensorsType& type : safetensors_types()) {
    data.emplace_back(type.bits * 24 / 8, char('a' + data.size()));
    tensors.push_back(
        {std::string("w.\"") + std::string(type.name) + "\n\\", &type, {2, 3, 4}, bytes_of(data.back())});
  }
  write_safetensors(path, tensors, {{"format", "pt"}});
  Safetensors in = Safetensors::open(path);
  EXPECT_EQ(in.metadata().at("format"), "pt");
  ASSERT_EQ(in.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsTensor* t = in.find(tensors[i].name);
    ASSERT_NE(t, nullptr) << tensors[i].name;
    EXPECT_EQ(t->type, tensors[i].type);
    EXPECT_EQ(t->shape, tensors[i].shape);
    ASSERT_EQ(t->data.size(), data[i].size());
    EXPECT_EQ(std::memcmp(t->data.data(), data[i].data(), data[i].size()), 0);
  }
}

TEST(Safetensors, EveryErrorNamesItsPlace) {
  EXPECT_EQ(error_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "no error");
  EXPECT_EQ(error_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )", 4), "no error");
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("tensor 'w'"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("12 bytes"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7),
              HasSubstr("lie in the file"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9), HasSubstr("cover"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
              HasSubstr("one after the other"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2),
              HasSubstr("lie in the file"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
              HasSubstr("no whole number"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
              HasSubstr("tensor 'w'"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}})"),
              HasSubstr("2^64"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})"), HasSubstr("byte"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{}})"), HasSubstr("once"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})"),
              HasSubstr("'more'"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[0]}})"), HasSubstr("data_offsets"));
  EXPECT_THAT(error_of(R"({} x)"), HasSubstr("byte 11"));
  EXPECT_THAT(error_of(R"({"a\ud800":{}})"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of(R"({"a":)"), HasSubstr("complete"));
  std::string huge(8, '\xff');
  EXPECT_THROW(Safetensors::parse(bytes_of(huge), "x"), ParseError);
}

TEST(Safetensors, AnIndexJoinsFiles) {
  std::string folder = testing::TempDir(), a(4, 'a'), b(4, 'b');
  const SafetensorsType* u8 = find_safetensors_type("U8");
  std::vector<SafetensorsTensor> one = {{"a", u8, {4}, bytes_of(a)}}, two = {{"b", u8, {2, 2}, bytes_of(b)}};
  write_safetensors(folder + "m-1.safetensors", one);
  write_safetensors(folder + "m-2.safetensors", two);
  std::string index = folder + "m.safetensors.index.json";
  write_file(
      index,
      R"({"metadata":{"total_size":8.0e0,"x":[null,true]},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  Safetensors in = Safetensors::open(index);
  ASSERT_EQ(in.tensors().size(), 2u);
  EXPECT_EQ(std::memcmp(in.find("b")->data.data(), b.data(), 4), 0);
  for (const char* bad :
       {R"({"weight_map":{"a":"m-2.safetensors"}})", R"({"weight_map":{"a":"../m-1.safetensors"}})", R"({})",
        R"({"weight_map":{"a":"m-1.safetensors","a":"m-1.safetensors"}})"}) {
    write_file(index, bad);
    EXPECT_THROW(Safetensors::open(index), ParseError) << bad;
  }
}

TEST(Safetensors, DamagedFilesAreReadOrRefused) {
  const std::string file = file_of(
      R"({"__metadata__":{"k":"v\u00e9"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})",
      24);
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) : 20000;
  SplitMix64 random(17);
  std::uint64_t sum = 0;
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    std::string damaged = file;
    for (std::uint64_t n = 1 + random.next() % 2; n > 0 && !damaged.empty(); --n) {
      std::size_t at = random.next() % damaged.size();
      switch (random.next() % 4) {
        case 0:
          damaged[at] = char(random.next());
          break;
        case 1:
          damaged[at] = "0129{}[]\",:\\"[random.next() % 12];
          break;
        case 2:
          damaged.resize(at);
          break;
        case 3:
          damaged.insert(at, damaged.substr(random.next() % damaged.size(), random.next() % 32));
          break;
      }
    }
    try {
      Safetensors in = Safetensors::parse(bytes_of(damaged), "x.safetensors");
      for (const SafetensorsTensor& t : in.tensors())
        for (std::byte b : t.data) sum += std::uint64_t(b);
    } catch (const ParseError& e) {
      ++refused;
      ASSERT_THAT(e.where(), HasSubstr("byte "));
    }
  }
  EXPECT_GT(refused, cases / 2);
  EXPECT_NE(sum, 0u);
}

}  // namespace
}  // namespace cgp::model
