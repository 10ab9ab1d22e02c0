// What a build of torch for the CPU lacks to differentiate tensors of a CUDA device that holds no memory.
//
// The autograd engine asks for the device's guard (c10/core/impl/DeviceGuardImplInterface.h) and for the accelerator
// (ATen/detail/CUDAHooksInterface.h). The first is a slot to fill. The second is a singleton that torch has made
// already: it has no state, so it gets the methods of ours.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto kCuda = c10::DeviceType::CUDA;

struct Hooks final : at::CUDAHooksInterface {
  bool isBuilt() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex deviceCount() const override { return 1; }
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kCuda> {
  c10::Device exchangeDevice(c10::Device) const override { return {kCuda, 0}; }
  c10::Device getDevice() const override { return {kCuda, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kCuda, 0));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream({kCuda, 0}); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

}  // namespace

// Returns 0, 1 where a real GPU is there already, 2 where torch's hooks could not be replaced.
extern "C" int fusionscope_stand_in() {
  auto& slot = c10::impl::device_guard_impl_registry[static_cast<size_t>(kCuda)];
  if (slot.load() && slot.load()->deviceCount() > 0) return 1;
  static const auto* hooks = new Hooks();
  slot.store(new Guard());
  const at::CUDAHooksInterface& torchs = at::detail::getCUDAHooks();
  *reinterpret_cast<void**>(const_cast<at::CUDAHooksInterface*>(&torchs)) =
      *reinterpret_cast<void* const*>(hooks);
  return torchs.isBuilt() ? 0 : 2;
}
