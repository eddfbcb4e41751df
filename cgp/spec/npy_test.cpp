// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/npy.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/file.h"

namespace cgp::spec {
namespace {

/// What NumPy 1.26's np.save writes for np.arange(3, dtype='<f4'), byte by byte.
std::string numpy_file() {
  std::string s("\x93NUMPY\x01\x00v\x00", 10);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  header.resize(117, ' ');
  s += header + "\n";
  const float v[3] = {0, 1, 2};
  s.append(reinterpret_cast<const char*>(v), sizeof v);
  return s;
}
std::string with_header(const std::string& dict, std::size_t data_bytes) {
  std::string s("\x93NUMPY\x01\x00", 8);
  s.push_back(char(dict.size() + 1));
  s.push_back('\0');
  return s + dict + "\n" + std::string(data_bytes, '\0');
}
template <class E>
std::string message_of(const std::string& content, std::optional<DType> want = {}) {
  try {
    parse_npy(content, "x.npy", want);
  } catch (const E& e) {
    return e.what();
  }
  return "(nothing thrown)";
}

TEST(npy, reads_and_writes_what_numpy_writes) {
  ASSERT_EQ(numpy_file().size(), 128u + 12);
  const HostArray a = parse_npy(numpy_file(), "x.npy");
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(a.shape, std::vector<std::uint64_t>{3});
  EXPECT_EQ(load_as_double(DType::f32, a.bytes.data(), 2), 2.0);
  const std::string written = format_npy(a);
  EXPECT_EQ((written.size() - 12) % 64, 0u);  // NumPy aligns the data
  EXPECT_EQ(parse_npy(written, "y.npy").bytes, a.bytes);
}

TEST(npy, every_dtype_and_shape_comes_back) {
  for (int i = 0; i < kDTypeCount; ++i)
    for (const auto& shape : {std::vector<std::uint64_t>{}, {0}, {5}, {2, 3}, {1, 2, 3, 4}}) {
      HostArray a;
      a.dtype = DType(i);
      a.shape = shape;
      std::uint64_t n = 1;
      for (auto extent : shape) n *= extent;
      for (std::uint64_t b = 0; b < n * std::uint64_t(bytes(a.dtype)); ++b)
        a.bytes.push_back(std::uint8_t(b * 7));
      const HostArray back = parse_npy(format_npy(a), "x.npy", a.dtype);
      EXPECT_EQ(back.dtype, a.dtype);
      EXPECT_EQ(back.shape, a.shape);
      EXPECT_EQ(back.bytes, a.bytes);
    }
}

TEST(npy, versions_2_and_3_have_four_length_bytes) {
  std::string s = numpy_file();
  s[6] = 2;
  s.insert(10, 2, '\0');
  EXPECT_EQ(parse_npy(s, "x.npy").count(), 3u);
  s[6] = 3;
  EXPECT_EQ(parse_npy(s, "x.npy").count(), 3u);
}

TEST(npy, says_what_is_wrong_with_a_file) {
  const std::string good = numpy_file();
  EXPECT_NE(message_of<ParseError>("hello").find("must begin with"), std::string::npos);
  EXPECT_NE(message_of<ParseError>(good.substr(0, 60)).find("whole header"), std::string::npos);
  EXPECT_NE(message_of<ParseError>(good.substr(0, good.size() - 1)).find("truncated"), std::string::npos);
  EXPECT_NE(message_of<ParseError>(good + "x").find("must end after its data"), std::string::npos);
  EXPECT_NE(message_of<ParseError>(with_header("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4))
                .find("little-endian"),
            std::string::npos);
  EXPECT_NE(message_of<ParseError>(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", 8))
                .find("ascontiguousarray"),
            std::string::npos);
  EXPECT_NE(message_of<ParseError>(with_header("{'descr': '<c8', 'fortran_order': False, 'shape': ()}", 8))
                .find("number type"),
            std::string::npos);
  EXPECT_NE(
      message_of<ParseError>(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4))
          .find("structured"),
      std::string::npos);
  EXPECT_NE(message_of<ParseError>(with_header("{'descr': '<f4', 'shape': ()}", 4)).find("fortran_order"),
            std::string::npos);
  EXPECT_NE(message_of<ParseError>(
                with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 4))
                .find("fit in memory"),
            std::string::npos);
  EXPECT_NE(message_of<ArgumentError>(good, DType::f64).find("must hold f64"), std::string::npos);
}

TEST(npy, a_one_dimensional_fortran_array_is_also_in_c_order) {
  EXPECT_EQ(parse_npy(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8), "x").count(),
            2u);
}

TEST(npy, raw_files_take_their_type_from_the_caller) {
  const std::string path = testing::TempDir() + "cgp_raw.bin";
  write_file(path, std::string("\x01\x02\x03\x04\x05\x06", 6));
  EXPECT_EQ(read_array(path, DType::u16).count(), 3u);
  EXPECT_THROW(read_array(path, std::nullopt), ArgumentError);
  EXPECT_THROW(read_array(path, DType::u32), ParseError);
  EXPECT_THROW(read_array(path, DType::u8, 7), ArgumentError);
  EXPECT_THROW(read_array(path + ".missing", DType::u8), Error);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace cgp::spec
