// SPDX-License-Identifier: BSD-3-Clause
// Loads a model that export.py has compiled ahead of time and runs it on a device, for batches of
// several sizes, with no Python: run_package FILE.pt2 [DEVICE INDEX]. What the same weights give in
// eager mode on the CPU is printed beside it. Exits with 1 when they disagree.

#include "loom/loom.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <unordered_map>

namespace {

using torch::inductor::AOTIModelPackageLoader;
using Weights = std::unordered_map<std::string, at::Tensor>;

at::Tensor eager(const Weights& weights, const at::Tensor& x) {
  const auto weight = [&](const char* name) { return weights.at(name).cpu(); };
  const at::Tensor hidden = at::relu(at::linear(x, weight("0.weight"), weight("0.bias")));
  return at::softmax(at::linear(hidden, weight("2.weight"), weight("2.bias")), -1);
}

bool agrees(AOTIModelPackageLoader& model, c10::Device device, const Weights& weights,
            std::int64_t batch) {
  const at::Tensor x = at::randn({batch, 16});
  const at::Tensor result = model.run({x.to(device)}).at(0);
  const at::Tensor expected = eager(weights, x);
  const bool same = result.device() == device && result.cpu().allclose(expected, 1e-4, 1e-5);
  std::printf("%6lld %10.6f %10.6f\n", static_cast<long long>(batch), result[0][0].item<double>(),
              expected[0][0].item<double>());
  return same;
}

int run(const std::string& path, c10::DeviceIndex index) {
  loom::init();
  const c10::Device device(c10::kPrivateUse1, index);
  AOTIModelPackageLoader model(path, "model", /*run_single_threaded=*/false, /*num_runners=*/1,
                               index);
  Weights weights = model.get_runner()->extract_constants_map(/*use_inactive=*/false);
  std::printf("%6s %10s %10s\n", "batch", "package", "eager");
  bool same = true;
  for (const std::int64_t batch : {1, 8, 1000}) {
    same = agrees(model, device, weights, batch) && same;
  }
  // Other weights, as after more training. They may lie anywhere.
  for (auto& [name, weight] : weights) weight = weight.cpu() * 0.5;
  model.load_constants(weights, /*use_inactive=*/false, /*check_full_update=*/true,
                       /*user_managed=*/false, /*allow_h2d_copy=*/true);
  same = agrees(model, device, weights, 8) && same;
  std::printf("%s\n", same ? "package and eager agree" : "package and eager DISAGREE");
  return same ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s FILE.pt2 [DEVICE INDEX]\n", arguments[0]);
    return 2;
  }
  const int index = count > 2 ? std::atoi(arguments[2]) : 0;
  try {
    return run(arguments[1], static_cast<c10::DeviceIndex>(index));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
