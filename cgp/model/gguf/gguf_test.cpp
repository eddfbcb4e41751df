// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf_writer.h"

namespace cgp::model {
namespace {

using text::cat;

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ParseError& e) {
    return e.what();
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "no error";
}

/// A GGUF file written value by value, so that tests can break each of them.
struct Raw {
  std::string s;
  template <class T>
  Raw& put(T v) {
    s.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Raw& str(std::string_view v) {
    put(std::uint64_t(v.size()));
    s += v;
    return *this;
  }
  static Raw header(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    Raw r;
    r.s = "GGUF";
    return r.put(version).put(tensors).put(entries);
  }
  Raw& tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              std::uint64_t offset) {
    str(name).put(std::uint32_t(shape.size()));
    for (auto n : shape) put(n);
    return put(type).put(offset);
  }
  Raw& pad(std::size_t more) {
    s.resize((s.size() + 31) / 32 * 32 + more);
    return *this;
  }
  std::string error() const {
    return error_of([&] { Gguf::parse(bytes_of(s), "x.gguf"); });
  }
};

TEST(Gguf, EveryValueTypeReadsBack) {
  GgufWriter out;
  out.add("u8", std::uint8_t(200));
  out.add("i8", std::int8_t(-100));
  out.add("u16", std::uint16_t(60000));
  out.add("i16", std::int16_t(-30000));
  out.add("u32", std::uint32_t(4000000000u));
  out.add("i32", std::int32_t(-2000000000));
  out.add("u64", std::uint64_t(1) << 63);
  out.add("i64", -(std::int64_t(1) << 62));
  out.add("f32", 1.5f);
  out.add("f64", 0.1);
  out.add("bool", true);
  out.add("string", "a\0b");
  std::vector<std::string_view> words = {"", "x", "two words"};
  out.add_array("strings", std::span<const std::string_view>(words));
  std::vector<std::int16_t> numbers = {-1, 2, -3};
  out.add_array("numbers", std::span<const std::int16_t>(numbers));
  std::string file = out.bytes();
  Gguf in = Gguf::parse(bytes_of(file), "x.gguf");
  EXPECT_EQ(in.version(), 3u);
  EXPECT_EQ(in.integer("u8"), 200u);
  EXPECT_EQ(in.find_signed("i8"), -100);
  EXPECT_EQ(in.integer("u16"), 60000u);
  EXPECT_EQ(in.find_signed("i16"), -30000);
  EXPECT_EQ(in.integer("u32"), 4000000000u);
  EXPECT_EQ(in.find_signed("i32"), -2000000000);
  EXPECT_EQ(in.integer("u64"), std::uint64_t(1) << 63);
  EXPECT_EQ(in.find_signed("i64"), -(std::int64_t(1) << 62));
  EXPECT_EQ(in.number("f32"), 1.5);
  EXPECT_EQ(in.number("f64"), 0.1);
  EXPECT_EQ(in.find_bool("bool"), true);
  EXPECT_EQ(in.string("string"), "a");
  EXPECT_EQ(in.find_array("strings", GgufType::string)->strings, words);
  EXPECT_EQ(in.find_array("numbers", GgufType::i16)->at<std::int16_t>(2), -3);
  // A copy through values, as a program does that changes tensors alone, is the same file.
  GgufWriter copy;
  for (const auto& [key, value] : in.metadata()) copy.add(key, value);
  EXPECT_EQ(copy.bytes(), file);
}

TEST(Gguf, ArraysOfArrays) {
  Raw r = Raw::header(0, 1);
  r.str("k").put(9u).put(9u).put(std::uint64_t(2));
  r.put(4u).put(std::uint64_t(2)).put(1u).put(2u);
  r.put(8u).put(std::uint64_t(1)).str("deep");
  Gguf in = Gguf::parse(bytes_of(r.s), "x.gguf");
  const GgufArray* outer = in.find_array("k", GgufType::array);
  ASSERT_EQ(outer->arrays.size(), 2u);
  EXPECT_EQ(outer->arrays[0].at<std::uint32_t>(1), 2u);
  EXPECT_EQ(outer->arrays[1].strings[0], "deep");
  GgufWriter copy;
  copy.add("k", in.metadata()[0].value);
  std::string copied = copy.bytes();
  EXPECT_EQ(copied.substr(0, r.s.size()), r.s);
  Raw deep = Raw::header(0, 1);
  deep.str("k").put(9u);
  for (int i = 0; i < 20; ++i) deep.put(9u).put(std::uint64_t(1));
  EXPECT_THAT(deep.put(0u).put(std::uint64_t(0)).error(), testing::HasSubstr("nested at most 8"));
}

TEST(Gguf, TensorsOfEveryTypeHaveTheirBytes) {
  for (std::uint64_t alignment : {8, 32, 4096}) {
    GgufWriter out(alignment);
    std::vector<std::string> data;
    data.reserve(ggml_types().size());
    for (const GgmlType& type : ggml_types()) {
      data.emplace_back(std::size_t(type.block_bytes) * 2 * 3, char('a' + type.id % 26));
      out.add_tensor(type.name, type, {type.block_elements * 2ull, 3}, bytes_of(data.back()));
    }
    std::string file = out.bytes();
    Gguf in = Gguf::parse(bytes_of(file), "x.gguf");
    EXPECT_EQ(in.alignment(), alignment);
    ASSERT_EQ(in.tensors().size(), data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const GgufTensor& t = in.tensors()[i];
      EXPECT_EQ(t.elements, t.type->block_elements * 6ull);
      EXPECT_EQ(t.row_bytes(), t.type->block_bytes * 2ull);
      EXPECT_EQ(std::size_t(t.data.data() - bytes_of(file).data()) % alignment, 0u);
      ASSERT_EQ(t.data.size(), data[i].size());
      EXPECT_EQ(std::memcmp(t.data.data(), data[i].data(), data[i].size()), 0) << t.name;
    }
    EXPECT_EQ(&in.tensor("Q4_K"), in.find_tensor("Q4_K"));
    EXPECT_THAT(error_of([&] { in.tensor("Q4_J"); }),
                testing::AllOf(testing::HasSubstr("Q4_J"), testing::HasSubstr("Q4_K")));
  }
}

TEST(Gguf, BlockSizesAreThoseOfGgml) {
  auto bits = [](std::string_view name) {
    const GgmlType* t = find_ggml_type(name);
    return t->block_bytes * 8.0 / t->block_elements;
  };
  EXPECT_EQ(bits("Q4_0"), 4.5);
  EXPECT_EQ(bits("Q8_0"), 8.5);
  EXPECT_EQ(bits("Q2_K"), 2.625);
  EXPECT_EQ(bits("Q3_K"), 3.4375);
  EXPECT_EQ(bits("Q4_K"), 4.5);
  EXPECT_EQ(bits("Q6_K"), 6.5625);
  EXPECT_EQ(bits("IQ2_XXS"), 2.0625);
  EXPECT_EQ(bits("IQ4_XS"), 4.25);
  EXPECT_EQ(bits("MXFP4"), 4.25);
  EXPECT_EQ(find_ggml_type(4u), nullptr) << "withdrawn";
}

TEST(Gguf, EveryErrorNamesItsPlace) {
  using testing::HasSubstr;
  const std::uint64_t huge = ~0ull;
  EXPECT_THAT(error_of([] { Gguf::parse({}, "x.gguf"); }), HasSubstr("byte 0"));
  Raw other;
  other.s = "GGML....";
  EXPECT_THAT(other.error(), HasSubstr("letters GGUF"));
  EXPECT_THAT(Raw::header(0, 0, 1).error(), HasSubstr("version 1"));
  EXPECT_THAT(Raw::header(0, 0, 0x03000000).error(), HasSubstr("little endian"));
  EXPECT_THAT(Raw::header(huge, 0).error(), HasSubstr("byte 8"));
  EXPECT_THAT(Raw::header(0, huge).error(), HasSubstr("byte 16"));
  EXPECT_THAT(Raw::header(0, 1).put(huge).pad(64).error(), HasSubstr("byte 32")) << "length of a key";
  auto entry = [](std::uint32_t type) {
    Raw r = Raw::header(0, 1);
    r.str("my.key").put(type);
    return r;
  };
  EXPECT_THAT(entry(13).pad(64).error(), testing::AllOf(HasSubstr("key 'my.key'"), HasSubstr("0 to 12")));
  EXPECT_THAT(entry(8).put(huge).pad(64).error(), HasSubstr("key 'my.key'"));
  EXPECT_THAT(entry(9).put(4u).put(huge).pad(64).error(), HasSubstr("the array's count must fit"));
  EXPECT_THAT(entry(9).put(8u).put(huge / 8).pad(64).error(), HasSubstr("the array's count must fit"));
  EXPECT_THAT(entry(7).put('\2').pad(64).error(), HasSubstr("0 or 1"));
  EXPECT_THAT(Raw::header(0, 2).str("k").put(0u).put('a').str("k").put(0u).put('b').error(),
              HasSubstr("once"));
  EXPECT_THAT(Raw::header(0, 1).str("general.alignment").put(4u).put(24u).error(), HasSubstr("power of two"));
  EXPECT_THAT(Raw::header(0, 1).str("general.alignment").put(8u).str("32").error(),
              HasSubstr("it is string"));
  auto tensor = [](std::vector<std::uint64_t> shape, std::uint32_t type, std::uint64_t offset) {
    return Raw::header(1, 0).tensor("w", shape, type, offset).pad(128).error();
  };
  EXPECT_EQ(tensor({8, 4}, 0, 0), "no error");
  EXPECT_THAT(tensor({8, 5}, 0, 0), testing::AllOf(HasSubstr("tensor 'w'"), HasSubstr("160 bytes")));
  EXPECT_THAT(tensor({8, 1}, 0, 128), HasSubstr("lie in the file"));
  EXPECT_THAT(tensor({8, 1}, 0, huge / 32 * 32), HasSubstr("lie in the file"));
  EXPECT_THAT(tensor({8, 1}, 0, 4), HasSubstr("aligned"));
  EXPECT_THAT(tensor({1ull << 32, 1ull << 32}, 0, 0), HasSubstr("2^63"));
  EXPECT_THAT(tensor({1ull << 62, 1}, 28, 0), HasSubstr("2^64 bytes"));
  EXPECT_THAT(tensor({huge, 0}, 0, 0), HasSubstr("2^63"));
  EXPECT_THAT(tensor({}, 0, 0), HasSubstr("1 to 4"));
  EXPECT_THAT(tensor({1, 1, 1, 1, 1}, 0, 0), HasSubstr("1 to 4"));
  EXPECT_THAT(tensor({8}, 4, 0), HasSubstr("type 4"));
  EXPECT_THAT(tensor({33}, 2, 0), HasSubstr("blocks of 32 (Q4_0)"));
  EXPECT_THAT(Raw::header(2, 0).tensor("w", {1}, 0, 0).tensor("w", {1}, 0, 32).pad(128).error(),
              HasSubstr("once"));
}

TEST(Gguf, EveryTruncationIsAnError) {
  GgufWriter out;
  out.add("a", 1u);
  std::vector<std::string_view> words = {"one", "two"};
  out.add_array("b", std::span<const std::string_view>(words));
  std::string data(64, 'x');
  out.add_tensor("w", *find_ggml_type("F32"), {16}, bytes_of(data));
  std::string file = out.bytes();
  for (std::size_t n = 0; n < file.size(); ++n) {
    std::string cut = file.substr(0, n);
    EXPECT_THAT(error_of([&] { Gguf::parse(bytes_of(cut), "x.gguf"); }), testing::HasSubstr("x.gguf, byte"))
        << n;
  }
}

TEST(Gguf, ValuesOfAnotherTypeAreNamed) {
  GgufWriter out;
  out.add("negative", -1);
  out.add("text", "x");
  std::string file = out.bytes();
  Gguf in = Gguf::parse(bytes_of(file), "x.gguf");
  EXPECT_THAT(error_of([&] { in.integer("absent"); }), testing::HasSubstr("key 'absent'"));
  EXPECT_THAT(error_of([&] { in.integer("negative"); }), testing::HasSubstr("not negative"));
  EXPECT_THAT(error_of([&] { in.number("text"); }), testing::HasSubstr("it is string"));
  EXPECT_THAT(error_of([&] { in.find_array("text", GgufType::u8); }), testing::HasSubstr("array of u8"));
  EXPECT_EQ(in.find_number("absent"), std::nullopt);
}

TEST(GgufWriter, RefusesWhatNoReaderTakes) {
  GgufWriter out;
  out.add("k", 1u);
  EXPECT_THAT(error_of([&] { out.add("k", 2u); }), testing::HasSubstr("once"));
  std::string data(18, 'x');
  EXPECT_THAT(error_of([&] {
                out.add_tensor("w", *find_ggml_type("Q4_0"), {32, 2}, bytes_of(data));
              }),
              testing::HasSubstr("needs 36 bytes, 18"));
  EXPECT_THAT(error_of([&] { out.add_tensor("w", *find_ggml_type("Q4_0"), {16}, bytes_of(data)); }),
              testing::HasSubstr("blocks of 32"));
  EXPECT_THAT(error_of([&] { GgufWriter bad(24); }), testing::HasSubstr("power of two"));
}

TEST(Gguf, SplitModelsAreOneModel) {
  std::string base = testing::TempDir() + "split";
  std::string a(64, 'a'), b(32, 'b');
  auto part = [&](int index, const char* tensor, const std::string& data, int count = 2) {
    GgufWriter out;
    out.add("split.no", std::uint16_t(index));
    out.add("split.count", std::uint16_t(count));
    out.add("split.tensors.count", std::int32_t(2));
    out.add_tensor(tensor, *find_ggml_type("I8"), {data.size()}, bytes_of(data));
    out.write(cat(base, "-0000", index + 1, "-of-00002.gguf"));
  };
  std::string first = base + "-00001-of-00002.gguf", second = base + "-00002-of-00002.gguf";
  part(0, "a", a);
  part(1, "b", b);
  Gguf in = Gguf::open(first);
  ASSERT_EQ(in.tensors().size(), 2u);
  EXPECT_EQ(std::memcmp(in.tensor("b").data.data(), b.data(), b.size()), 0);
  EXPECT_THAT(error_of([&] { Gguf::open(second); }), testing::HasSubstr("first file"));
  part(1, "a", b);
  EXPECT_THAT(error_of([&] { Gguf::open(first); }), testing::HasSubstr("tensor 'a'"));
  part(1, "b", b, 3);
  EXPECT_THAT(error_of([&] { Gguf::open(first); }), testing::HasSubstr("belong together"));
  std::remove(second.c_str());
  EXPECT_THROW(Gguf::open(first), Error);
}

TEST(Gguf, TensorsBeyondFourGigabytes) {
  // A sparse file: the second tensor's offset needs more than 32 bits.
  std::string path = testing::TempDir() + "big.gguf";
  const std::uint64_t big = 5ull << 30;
  Raw r = Raw::header(2, 0);
  r.tensor("big", {1ull << 20, 5ull << 10}, 24, 0).tensor("last", {32}, 24, big).pad(0);
  {
    std::ofstream out(path, std::ios::binary);
    out << r.s;
    out.seekp(std::streamoff(r.s.size() + big));
    out << std::string(32, 'z');
  }
  Gguf in = Gguf::open(path);
  EXPECT_EQ(in.tensor("big").data.size(), big);
  EXPECT_EQ(in.tensor("last").data[31], std::byte('z'));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace cgp::model
