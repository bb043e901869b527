#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Replaces `<`, `>`, `&` and quotes by their entities.
std::string escape_html(const std::string& text);
/// A number with `digits` significant digits, without trailing zeros: 0.01234, 84210, 1.2e-05.
std::string short_number(double value, int digits = 4);

/// A chart as inline SVG. Colours are the CSS classes s0..s7 of the page, for light and dark pages. Omits points that
/// are not finite, above 1e300, or not positive on a logarithmic axis.
class SvgPlot {
 public:
  using Points = std::vector<std::pair<double, double>>;

  SvgPlot(std::string title, std::string x_label, std::string y_label);
  SvgPlot& log_y(bool on = true);
  SvgPlot& from_zero();
  SvgPlot& size(int width, int height);
  void line(std::string name, int color, const Points& points);
  /// A faint area between low[i] and high[i] at x[i].
  void band(int color, std::vector<double> x, std::vector<double> low, std::vector<double> high);
  void dots(std::string name, int color, const Points& points);
  /// Areas on top of each other; layers[i] has one height per x.
  void stack(const std::vector<std::string>& names, const std::vector<double>& x,
             const std::vector<std::vector<double>>& layers);
  /// A ring around one point, with a note.
  void mark(double x, double y, int color, std::string note);

  /// The `<figure>` with its legend; "" if there is nothing to draw.
  std::string html() const;

 private:
  enum class Shape { line, band, dots, area };
  struct Item {
    Shape shape;
    std::string name;
    int color;
    std::vector<double> x, low, high;
  };
  struct Mark {
    double x, y;
    int color;
    std::string note;
  };
  std::string title_, x_label_, y_label_;
  bool log_y_ = false, zero_ = false;
  int width_ = 560, height_ = 300;
  std::vector<Item> items_;
  std::vector<Mark> marks_;
};

}  // namespace lockstep
