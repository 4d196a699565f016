// SPDX-License-Identifier: BSD-3-Clause
// Trains the same small network twice with each of two optimizers, on the CPU and on loom, with
// PyTorch's C++ frontend and no Python, and prints the losses side by side. Exits with 1 when the
// two devices disagree or the network does not learn.

#include "loom/loom.h"

#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

namespace {

constexpr int kSteps = 60;
constexpr int kPrintEvery = 10;
constexpr double kTolerance = 1e-3;

/// Learns whether a point of the plane lies inside a ring.
struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(2, 64));
    middle = register_module("middle", torch::nn::Linear(64, 64));
    output = register_module("output", torch::nn::Linear(64, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(hidden->forward(x));
    x = torch::relu(middle->forward(x));
    return output->forward(x);
  }
  torch::nn::Linear hidden{nullptr}, middle{nullptr}, output{nullptr};
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(bool adam, Net& net) {
  if (adam) {
    return std::make_unique<torch::optim::Adam>(net.parameters(), torch::optim::AdamOptions(1e-2));
  }
  return std::make_unique<torch::optim::SGD>(net.parameters(),
                                             torch::optim::SGDOptions(0.2).momentum(0.9));
}

std::vector<double> train(const torch::Device& device, bool adam) {
  torch::manual_seed(0);  // data and weights are drawn on the CPU, so both devices see the same
  const torch::Tensor points = torch::rand({512, 2}) * 2 - 1;
  const torch::Tensor radius = points.pow(2).sum(1).sqrt();
  const torch::Tensor inside = radius.gt(0.4).logical_and(radius.lt(0.8)).to(torch::kLong);
  Net net;
  net.to(device);
  const auto optimizer = make_optimizer(adam, net);
  const torch::Tensor x = points.to(device);
  const torch::Tensor y = inside.to(device);

  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net.forward(x), y);
    loss.backward();
    optimizer->step();
    // Reading the value waits for the device; a longer program would do it now and then only.
    if (step % kPrintEvery == 0 || step == kSteps - 1) losses.push_back(loss.item<double>());
  }
  return losses;
}

bool compare(const char* name, bool adam) {
  const std::vector<double> cpu = train(torch::Device("cpu"), adam);
  const std::vector<double> loom = train(torch::Device("loom"), adam);
  bool same = true;
  std::printf("%s\n%6s %10s %10s\n", name, "step", "cpu", "loom");
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    const int step = i + 1 < cpu.size() ? static_cast<int>(i) * kPrintEvery : kSteps - 1;
    std::printf("%6d %10.5f %10.5f\n", step, cpu[i], loom[i]);
    same = same && std::abs(cpu[i] - loom[i]) <= kTolerance;
  }
  return same && loom.back() < 0.8 * loom.front();
}

}  // namespace

int main() {
  loom::init();
  std::printf("loom devices: %d\n", loom::device_count());
  const bool sgd = compare("SGD", false);
  const bool adam = compare("Adam", true);
  std::printf("peak memory on loom:0: %.1f KiB\n",
              static_cast<double>(loom::max_memory_allocated(0)) / 1024);
  std::printf("%s\n", sgd && adam ? "cpu and loom agree" : "cpu and loom DISAGREE");
  return sgd && adam ? 0 : 1;
}
