#include "report/svg_plot.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/report/progress_line.hpp"

namespace lockstep {

namespace {

/// Tick positions 1, 2, 5 x 10^k that cover [low, high] with about `wanted` steps.
std::vector<double> linear_ticks(double low, double high, int wanted) {
  const double raw = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0})
    if (power * factor >= raw * 0.999) {
      step = power * factor;
      break;
    }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 3 * wanted && (first + i) * step <= high + step * 1e-9; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

/// Powers of ten, with 2 and 5 between them if there are few. A range with less than two of these has linear ticks.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 7)));
  for (int k = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, k) <= high * 1.0001; k += stride)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double t = std::pow(10.0, k) * factor;
      if ((factor == 1 || decades < 2.2) && t >= low * 0.9999 && t <= high * 1.0001) ticks.push_back(t);
    }
  return ticks.size() > 1 ? ticks : linear_ticks(low, high, 6);
}

/// A short label: 400000 -> "400k".
std::string tick_label(double value, int digits) {
  if (std::abs(value) < 1e4 || std::abs(value) >= 1e12) return short_number(value, digits);
  return (value < 0 ? "-" : "") + short_rate(std::abs(value));
}

/// One label per tick, with as many digits as tell them apart.
std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (int digits = 4; digits <= 9; ++digits) {
    labels.clear();
    for (const double t : ticks) labels.push_back(tick_label(t, digits));
    if (std::ranges::adjacent_find(labels) == labels.end()) break;
  }
  return labels;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return !(low <= high); }
  /// Whether the values differ only by rounding.
  bool flat() const { return high - low <= 1e-9 * std::max(std::abs(low), std::abs(high)); }
};

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (!std::isfinite(value)) return value > 0 ? "inf" : "-inf";
  if (std::abs(value) >= 1e4 && std::abs(value) < 1e7 && value == std::floor(value)) return printed("%.0f", value);
  return printed("%.*g", digits, value);
}

SvgPlot::SvgPlot(std::string title, std::string x_label, std::string y_label)
    : title_(std::move(title)), x_label_(std::move(x_label)), y_label_(std::move(y_label)) {}
SvgPlot& SvgPlot::log_y(bool on) {
  log_y_ = on;
  return *this;
}
SvgPlot& SvgPlot::from_zero() {
  zero_ = true;
  return *this;
}
SvgPlot& SvgPlot::size(int width, int height) {
  width_ = width;
  height_ = height;
  return *this;
}

void SvgPlot::line(std::string name, int color, const Points& points) {
  Item item{Shape::line, std::move(name), color, {}, {}, {}};
  for (const auto& [x, y] : points) item.x.push_back(x), item.low.push_back(y);
  item.high = item.low;
  items_.push_back(std::move(item));
}
void SvgPlot::band(int color, std::vector<double> x, std::vector<double> low, std::vector<double> high) {
  items_.push_back({Shape::band, "", color, std::move(x), std::move(low), std::move(high)});
}
void SvgPlot::dots(std::string name, int color, const Points& points) {
  line(std::move(name), color, points);
  items_.back().shape = Shape::dots;
}
void SvgPlot::stack(const std::vector<std::string>& names, const std::vector<double>& x,
                    const std::vector<std::vector<double>>& layers) {
  std::vector<double> base(x.size(), 0);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<double> top = base;
    for (std::size_t k = 0; k < x.size() && k < layers[i].size(); ++k) top[k] += std::max(0.0, layers[i][k]);
    items_.push_back({Shape::area, names[i], static_cast<int>(i), x, base, top});
    base = std::move(top);
  }
}
void SvgPlot::mark(double x, double y, int color, std::string note) {
  marks_.push_back({x, y, color, std::move(note)});
}

std::string SvgPlot::html() const {
  constexpr double kMost = 1e300;  // beyond it a range may overflow; NaN fails, too
  const auto drawable = [&](double x, double y) {
    return std::abs(x) < kMost && std::abs(y) < kMost && (!log_y_ || y > 0);
  };
  Range xs, ys;
  for (const auto& item : items_)
    for (std::size_t i = 0; i < item.x.size(); ++i)
      for (const double y : {item.low[i], item.high[i]})
        if (drawable(item.x[i], y)) xs.include(item.x[i]), ys.include(y);
  if (xs.empty()) return {};
  if (zero_ && !log_y_) ys.include(0);
  const auto widen = [&](Range& r, bool logarithmic) {
    if (logarithmic) {
      const double pad = std::max(std::pow(r.high / r.low, 0.04), 1.05);
      r.low /= pad;
      r.high *= pad;
    } else {
      const double pad = !r.flat() ? 0.04 * (r.high - r.low) : r.high != 0 ? std::abs(r.high) * 0.1 : 0.5;
      r.high += pad;
      if (!(zero_ && r.low == 0)) r.low -= pad;
    }
  };
  widen(ys, log_y_);
  if (xs.flat()) xs.low -= 0.5, xs.high += 0.5;

  constexpr int kLeft = 64, kRight = 14, kTop = 12, kBottom = 42;
  const double w = width_ - kLeft - kRight, h = height_ - kTop - kBottom;
  const auto px = [&](double x) { return kLeft + (x - xs.low) / (xs.high - xs.low) * w; };
  const auto py = [&](double y) {
    const double t = log_y_ ? std::log(y / ys.low) / std::log(ys.high / ys.low) : (y - ys.low) / (ys.high - ys.low);
    return kTop + (1 - t) * h;
  };
  const auto at = [&](double x, double y) { return printed("%.1f", px(x)) + " " + printed("%.1f", py(y)); };

  std::string svg =
      join("<svg viewBox=\"0 0 ", width_, " ", height_, "\" role=\"img\" aria-label=\"", escape_html(title_), "\">");
  const std::vector<double> y_ticks = log_y_ ? log_ticks(ys.low, ys.high) : linear_ticks(ys.low, ys.high, 5);
  const std::vector<std::string> y_labels = tick_labels(y_ticks);
  for (std::size_t i = 0; i < y_ticks.size(); ++i) {
    const std::string y = printed("%.1f", py(y_ticks[i]));
    svg += join("<path class=\"grid\" d=\"M", kLeft, " ", y, "H", width_ - kRight, "\"/><text class=\"tick\" x=\"",
                kLeft - 7, "\" y=\"", y, "\" dy=\"4\" text-anchor=\"end\">", y_labels[i], "</text>");
  }
  const std::vector<double> x_ticks = linear_ticks(xs.low, xs.high, width_ > 400 ? 7 : 4);
  const std::vector<std::string> x_labels = tick_labels(x_ticks);
  for (std::size_t i = 0; i < x_ticks.size(); ++i) {
    const std::string x = printed("%.1f", px(x_ticks[i]));
    svg += join("<path class=\"grid\" d=\"M", x, " ", kTop, "V", height_ - kBottom, "\"/><text class=\"tick\" x=\"", x,
                "\" y=\"", height_ - kBottom + 17, "\" text-anchor=\"middle\">", x_labels[i], "</text>");
  }
  svg += join("<text class=\"label\" x=\"", kLeft + w / 2, "\" y=\"", height_ - 6, "\" text-anchor=\"middle\">",
              escape_html(x_label_), "</text><text class=\"label\" transform=\"translate(13 ", kTop + h / 2,
              ") rotate(-90)\" text-anchor=\"middle\">", escape_html(y_label_), "</text>");

  std::string legend;
  for (const auto& item : items_) {
    const std::string color = "s" + std::to_string(item.color % 8);
    if (!item.name.empty()) legend += "<span class=\"key " + color + "\">" + escape_html(item.name) + "</span>";
    if (item.shape == Shape::dots) {
      svg += "<g class=\"dots " + color + "\">";
      for (std::size_t i = 0; i < item.x.size(); ++i)
        if (drawable(item.x[i], item.low[i]))
          svg += "<circle cx=\"" + printed("%.1f", px(item.x[i])) + "\" cy=\"" + printed("%.1f", py(item.low[i])) +
                 "\" r=\"4.0\"/>";
      svg += "</g>";
      continue;
    }
    std::string forth, back;
    bool pen_down = false;
    for (std::size_t i = 0; i < item.x.size(); ++i) {
      if (!drawable(item.x[i], item.high[i]) || !drawable(item.x[i], item.low[i])) {
        if (item.shape == Shape::line) pen_down = false;
        continue;
      }
      forth += (pen_down ? "L" : "M") + at(item.x[i], item.high[i]);
      if (item.shape != Shape::line) back = "L" + at(item.x[i], item.low[i]) + back;
      pen_down = true;
    }
    if (forth.empty()) continue;
    if (item.shape == Shape::line)
      svg += "<path class=\"line " + color + "\" d=\"" + forth + "\"/>";
    else
      svg += std::string("<path class=\"") + (item.shape == Shape::band ? "band " : "area ") + color + "\" d=\"" +
             forth + back + "Z\"/>";
  }
  for (const auto& m : marks_) {
    if (!drawable(m.x, m.y)) continue;
    const bool right = px(m.x) > kLeft + w * 0.75;
    svg += join("<circle class=\"mark s", m.color % 8, "\" cx=\"", printed("%.1f", px(m.x)), "\" cy=\"",
                printed("%.1f", py(m.y)), "\" r=\"5\"/><text class=\"note\" x=\"",
                printed("%.1f", px(m.x) + (right ? -9 : 9)), "\" y=\"", printed("%.1f", py(m.y) - 7),
                "\" text-anchor=\"", right ? "end" : "start", "\">", escape_html(m.note), "</text>");
  }
  svg += "</svg>";
  return "<figure><figcaption>" + escape_html(title_) +
         (legend.empty() ? "" : "<span class=\"legend\">" + legend + "</span>") + "</figcaption>" + svg + "</figure>";
}

}  // namespace lockstep
