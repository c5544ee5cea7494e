// loader_rank make FILE COUNT WIDTH HEIGHT: writes JPEGs like photos, quality 90, 4:2:0.
// loader_rank load FILE SIZE BATCH WORKERS: loads batches by hanji's stages, as bench/loader.py asks.
// loader_rank decode FILE BATCH: decodes whole images by libjpeg-turbo, one thread.
// loader_rank make_tokens FILE COUNT: writes token ids of 2 bytes without a header.
// loader_rank tokens FILE LENGTH BATCH WORKERS: loads inputs and targets of so many tokens, 8 bytes each.
// loader_rank copy LENGTH BATCH: copies as many bytes as such a batch has, one thread.
// loader_rank copy_rows FILE LENGTH BATCH: copies them from random places of ids of 8 bytes, as many as the file has.
//
// A request is a line {"untimed": K, "batches": N}, the answer {"seconds": [...], "cpu_seconds": S}.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>
// after <cstdio>, which it needs
#include <jpeglib.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/data/batch.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/prefetcher.h"
#include "hanji/data/samples.h"
#include "hanji/data/token_file.h"

using namespace hanji;

namespace {

/// Large shapes with soft edges and some grain: about as many bytes as a photo's.
std::vector<uint8_t> picture(uint64_t number, int64_t width, int64_t height) {
  std::vector<uint8_t> pixels(static_cast<size_t>(3 * width * height));
  const auto place = [&](uint64_t i) {
    return 6.28 * base::uniform(base::Philox::draw(number, 1, i)[0]);
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto noise = base::Philox::draw(number, 0, static_cast<uint64_t>(y * width + x));
      for (uint64_t c = 0; c < 3; ++c) {
        const double wave = std::sin(0.02 * static_cast<double>(x) + place(c)) +
                            std::sin(0.03 * static_cast<double>(y) + place(c + 3)) +
                            std::tanh(5 * std::sin(0.05 * static_cast<double>(x + y) + place(7)));
        const double grain = 15 * (base::uniform(noise[3]) - 0.5);
        pixels[static_cast<size_t>(3 * (y * width + x)) + c] =
            static_cast<uint8_t>(std::clamp(128 + 38 * wave + grain, 0.0, 255.0));
      }
    }
  }
  return pixels;
}

std::string encode(std::vector<uint8_t> pixels, int64_t width, int64_t height) {
  jpeg_compress_struct encoder = {};
  jpeg_error_mgr errors = {};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 90, TRUE);
  jpeg_start_compress(&encoder, TRUE);
  for (int64_t y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + 3 * y * width;
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string stream(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  jpeg_destroy_compress(&encoder);
  return stream;
}

/// Raw rows, or JPEGs.
void make(const std::string& path, int64_t count, int64_t width, int64_t height, bool is_raw) {
  auto writer = data::BetonWriter::create(
                    path, {{"image", data::BetonType::kRgbImage}, {"label", data::BetonType::kInt}},
                    {.num_samples = static_cast<uint64_t>(count)})
                    .or_throw();
  size_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<uint8_t> pixels = picture(static_cast<uint64_t>(i), width, height);
    const std::string bytes = is_raw ? std::string(pixels.begin(), pixels.end())
                                     : encode(std::move(pixels), width, height);
    total += bytes.size();
    const auto mode = is_raw ? data::BetonImageMode::kRaw : data::BetonImageMode::kJpeg;
    const data::BetonValue values[] = {{.mode = mode,
                                        .width = static_cast<uint16_t>(width),
                                        .height = static_cast<uint16_t>(height),
                                        .bytes = std::as_bytes(std::span(bytes))},
                                       {.integer = i % 10}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  std::cout << base::Json({{"image_bytes", total / static_cast<size_t>(count)}}).dump() << "\n";
}

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Of a side without a first batch.
void say_ready() { std::cout << "{}" << std::endl; }

/// Calls `batch` as often as each request asks.
void answer(const std::function<void()>& batch) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = base::parse_json(line).or_throw();
    for (int64_t i = 0; i < asked["untimed"].get<int64_t>(); ++i) batch();
    const double cpu = cpu_seconds();
    std::vector<double> seconds;
    for (int64_t i = 0; i < asked["batches"].get<int64_t>(); ++i) {
      const int64_t start = base::now_ns();
      batch();
      seconds.push_back(static_cast<double>(base::now_ns() - start) * 1e-9);
    }
    std::cout << base::Json({{"seconds", seconds}, {"cpu_seconds", cpu_seconds() - cpu}}).dump()
              << std::endl;
  }
}

/// Answers with batches of all training samples, in random order, and says first what the first one took
/// from `start_ns` on.
void load_from(const data::Source& source, int64_t batch_size, int workers, int64_t start_ns) {
  const auto loader = data::Loader::create({.seed = 1,
                                            .num_samples = source.num_train(),
                                            .global_batch = batch_size,
                                            .share = {0, batch_size},
                                            .micro_batch = batch_size})
                          .or_throw();
  data::Prefetcher prefetcher(source, loader, workers, INT64_MAX);
  int64_t step = 0;
  const at::Tensor found = prefetcher.read(step++, {0, batch_size}).inputs;
  const double seconds = static_cast<double>(base::now_ns() - start_ns) * 1e-9;
  layers::Batch expected;
  data::read_batch(source, loader, 0, {0, batch_size}, expected);
  if (!at::equal(found, expected.inputs)) {
    throw std::runtime_error("the prefetched batch is another one");
  }
  std::cout << base::Json({{"decoder", "hanji"}, {"first_batch_seconds", seconds}}).dump()
            << std::endl;
  answer([&] { prefetcher.read(step++, {0, batch_size}); });
}

data::BetonImages open_images(const std::string& path, int64_t size, const std::string& stages) {
  return data::BetonImages::create(data::BetonFile::open(path).or_throw(),
                                   {.stages = plan::parse_image_stages(stages).or_throw(),
                                    .size = size,
                                    .validation_fraction = 0})
      .or_throw();
}

void load(const std::string& path, int64_t size, const std::string& stages, int64_t batch_size,
          int workers) {
  const int64_t start_ns = base::now_ns();
  load_from(open_images(path, size, stages), batch_size, workers, start_ns);
}

/// Writes the central parts of some images as float32 levels of 0 to 1.
void write_pixels(const std::string& path, int64_t size, int64_t count, const std::string& to) {
  const data::BetonImages images = open_images(path, size, "center_crop(ratio = 0.875)");
  layers::Batch batch;
  data::shape_batch(images.shape(), {0, count}, batch);
  for (int64_t i = 0; i < count; ++i) {
    base::throw_if_error(images.read(data::Part::kTrain, i, batch, i));
  }
  auto file = base::OutputFile::open(to).or_throw();
  const std::span floats(batch.inputs.const_data_ptr<float>(),
                         static_cast<size_t>(batch.inputs.numel()));
  base::throw_if_error(file.append(std::as_bytes(floats)));
  base::throw_if_error(file.close());
}

/// Seconds of every image of a file once, by one thread, opening included.
void first_epochs(const std::string& path, int64_t size, const std::string& stages) {
  say_ready();
  answer([&] {
    const data::BetonImages images = open_images(path, size, stages);
    layers::Batch batch;
    data::shape_batch(images.shape(), {0, 1}, batch);
    for (int64_t i = 0; i < images.num_train(); ++i) {
      base::throw_if_error(images.read_in_epoch(0, i, batch, 0));
    }
  });
}

void load_tokens(const std::string& path, int64_t length, int64_t batch_size, int workers) {
  const int64_t start_ns = base::now_ns();
  load_from(
      data::TokenSamples::create(data::open_tokens(path, data::TokenFormat::kNanoGpt).or_throw(),
                                 {.block = length, .validation_fraction = 0, .vocabulary = 1 << 16})
          .or_throw(),
      batch_size, workers, start_ns);
}

void make_tokens(const std::string& path, int64_t count) {
  auto file = base::OutputFile::open(path).or_throw();
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<uint16_t>(base::mix(1, static_cast<uint64_t>(i)) % 50257);
    base::throw_if_error(file.append(std::as_bytes(std::span(&id, 1))));
  }
  base::throw_if_error(file.close());
}

void copy(int64_t length, int64_t batch_size) {
  say_ready();
  const std::vector<int64_t> from(static_cast<size_t>(2 * length * batch_size), 1);
  std::vector<int64_t> to(from.size());
  answer([&] {
    std::copy(from.begin(), from.end(), to.begin());
    __asm__ volatile("" : : "r"(to.data()) : "memory");  // the copy is kept
  });
}

/// What a loader would do whose file had the ids as the batch has them.
void copy_rows(const std::string& path, int64_t length, int64_t batch_size) {
  const auto tokens = data::open_tokens(path, data::TokenFormat::kNanoGpt).or_throw();
  std::vector<int64_t> ids(static_cast<size_t>(tokens.num_tokens()));
  base::throw_if_error(tokens.copy_tokens(0, tokens.num_tokens(), ids.data()));
  std::vector<int64_t> inputs(static_cast<size_t>(length * batch_size)), targets = inputs;
  const auto num_rows = static_cast<uint64_t>((tokens.num_tokens() - 1) / length);
  uint64_t next = 0;
  say_ready();
  answer([&] {
    for (int64_t row = 0; row < batch_size; ++row) {
      const int64_t* from =
          ids.data() + static_cast<int64_t>(base::mix(1, next++) % num_rows) * length;
      std::copy_n(from, length, inputs.data() + row * length);
      std::copy_n(from + 1, length, targets.data() + row * length);
    }
    __asm__ volatile("" : : "r"(inputs.data()), "r"(targets.data()) : "memory");
  });
}

void decode(const std::string& path, int64_t batch_size) {
  const auto file = data::BetonFile::open(path).or_throw();
  jpeg_decompress_struct decoder = {};
  jpeg_error_mgr errors = {};
  decoder.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&decoder);
  std::vector<uint8_t> pixels;
  uint64_t next = 0;
  say_ready();
  answer([&] {
    for (int64_t i = 0; i < batch_size; ++i) {
      const auto stream = file.read(next++ % file.num_samples(), 0).or_throw().bytes;
      jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(stream.data()), stream.size());
      jpeg_read_header(&decoder, TRUE);
      jpeg_start_decompress(&decoder);
      const size_t pitch = size_t{3} * decoder.output_width;
      pixels.resize(pitch * decoder.output_height);
      while (decoder.output_scanline < decoder.output_height) {
        JSAMPROW row = pixels.data() + pitch * decoder.output_scanline;
        jpeg_read_scanlines(&decoder, &row, 1);
      }
      jpeg_finish_decompress(&decoder);
    }
  });
  jpeg_destroy_decompress(&decoder);
}

int run(const std::vector<std::string>& arguments) {
  const auto number = [&](size_t i) { return std::stoll(arguments.at(i)); };
  const std::string& verb = arguments.at(0);
  at::set_num_threads(1);
  const std::string& path = arguments.at(1);
  if (verb == "make") make(path, number(2), number(3), number(4), arguments.at(5) == "raw");
  if (verb == "load") {
    load(path, number(2), arguments.at(3), number(4), static_cast<int>(number(5)));
  }
  if (verb == "pixels") write_pixels(path, number(2), number(3), arguments.at(4));
  if (verb == "first_epochs") first_epochs(path, number(2), arguments.at(3));
  if (verb == "decode") decode(path, number(2));
  if (verb == "make_tokens") make_tokens(path, number(2));
  if (verb == "tokens") {
    load_tokens(path, number(2), number(3), static_cast<int>(number(4)));
  }
  if (verb == "copy") copy(number(1), number(2));
  if (verb == "copy_rows") copy_rows(path, number(2), number(3));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "loader_rank: {}\n", error.what());
    return 1;
  }
}
