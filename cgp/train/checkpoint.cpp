// SPDX-License-Identifier: Apache-2.0
#include "cgp/train/checkpoint.h"

#include <cstdlib>
#include <list>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/safetensors/safetensors.h"

namespace cgp::train {
namespace {

constexpr const char *kFirst = "optimizer.first.", *kSecond = "optimizer.second.", *kSteps = "steps";

[[noreturn]] void refuse(std::string rule, const std::string& path, std::string why, std::string hint = {}) {
  throw ArgumentError({std::move(rule), path, std::move(why), std::move(hint)});
}

/// Tensors to be written, and their data.
class Tensors {
 public:
  template <class T>
  void add(std::string name, std::string_view type, const std::vector<std::uint64_t>& shape,
           const std::vector<T>& v) {
    const auto bytes = std::as_bytes(std::span(v));
    auto& kept = data_.emplace_back(bytes.begin(), bytes.end());
    all_.push_back({std::move(name), model::find_safetensors_type(type), shape, kept});
  }
  void write(const std::string& path, const std::map<std::string, std::string>& metadata) const {
    model::write_safetensors(path, all_, metadata);
  }

 private:
  std::list<std::vector<std::byte>> data_;
  std::vector<model::SafetensorsTensor> all_;
};

std::vector<float> values(const model::Safetensors& file, const std::string& path, const std::string& name,
                          const std::vector<std::uint64_t>& shape) {
  const auto* t = file.find(name);
  if (!t) t = file.find("transformer." + name);
  if (!t)
    refuse(text::cat("the file must hold ", name), path, "it is not there", "check the shape of the model");
  if (t->shape != shape)
    refuse(
        text::cat(name, " must have the shape of the model"), path,
        text::cat("it has ", t->shape.size(), " dimensions, the first ", t->shape.empty() ? 1 : t->shape[0],
                  "; needed are ", shape.size(), ", the first ", shape[0]));
  const auto type = t->type->name == "F32"    ? DType::f32
                    : t->type->name == "F16"  ? DType::f16
                    : t->type->name == "BF16" ? DType::bf16
                                              : DType::u8;
  if (type == DType::u8)
    throw Unsupported(text::cat(path, ": ", name, " is ", t->type->name, "; weights are F32, F16 or BF16"));
  std::vector<float> v(t->data.size() / std::size_t(bytes(type)));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = float(load_as_double(type, t->data.data(), i));
  return v;
}

}  // namespace

void save_weights(const std::string& path, const Trainer& t) {
  Tensors out;
  for (std::size_t i = 0; i < t.parameters().size(); ++i) {
    const auto& p = t.parameters()[i];
    const auto w = t.weight(i);
    if (t.options().type == DType::bf16)
      out.add(p.name, "BF16", p.shape, std::vector<bfloat16>(w.begin(), w.end()));
    else
      out.add(p.name, "F32", p.shape, w);
  }
  out.write(path, {{"format", "pt"}});
}

void load_weights(const std::string& path, Trainer& t) {
  const auto file = model::Safetensors::open(path);
  for (std::size_t i = 0; i < t.parameters().size(); ++i)
    t.set_weight(i, values(file, path, t.parameters()[i].name, t.parameters()[i].shape));
}

void save_checkpoint(const std::string& path, Trainer& t, const std::map<std::string, std::string>& more) {
  Tensors out;
  for (std::size_t i = 0; i < t.parameters().size(); ++i) {
    const auto& p = t.parameters()[i];
    const auto state = t.state(i);
    out.add(p.name, "F32", p.shape, t.weight(i));
    out.add(kFirst + p.name, "F32", p.shape, state.first);
    out.add(kSecond + p.name, "F32", p.shape, state.second);
  }
  auto metadata = more;
  metadata[kSteps] = text::cat(t.steps());
  out.write(path, metadata);
}

std::map<std::string, std::string> load_checkpoint(const std::string& path, Trainer& t) {
  const auto file = model::Safetensors::open(path);
  auto metadata = file.metadata();
  const auto steps = metadata.find(kSteps);
  if (steps == metadata.end())
    refuse("a checkpoint must say its number of steps", path, "its metadata do not", "load weights alone");
  for (std::size_t i = 0; i < t.parameters().size(); ++i) {
    const auto& p = t.parameters()[i];
    t.set_weight(i, values(file, path, p.name, p.shape));
    t.set_state(
        i, {values(file, path, kFirst + p.name, p.shape), values(file, path, kSecond + p.name, p.shape)});
  }
  t.set_steps(std::strtoull(steps->second.c_str(), nullptr, 10));
  metadata.erase(steps);
  return metadata;
}

}  // namespace cgp::train
