/* Text that large files are made of: columns of whole numbers from lines, and lines from columns.
 *
 * dovetail.native.texts calls both, and describes the arrays. What they leave to Python (decimals,
 * malformed lines, names of all kinds) Python does; where both can, the results are equal.
 */
#include "kernels.h"

enum { UNCLEAN = -2 };
enum { MOST_DIGITS = 15 }; /* so many fit a double exactly */

/* Columns of lines of `width` whole numbers each, of which `place[field]` is the column that a field goes to,
 * or negative. `columns` has room for `most` lines in each column, one column after the other. `signs[field]`
 * becomes 1 where some line has no dash in that field. Blank lines are passed over.
 * How many lines there are; UNCLEAN where the text holds anything else. O(bytes). */
number dovetail_read_whole_numbers(
    const uint8_t *text, number size, number width, const number *place, double *columns, number most,
    number *signs
) {
    number line = 0, field = 0;
    for (number at = 0; at < size;) {
        uint8_t byte = text[at];
        if (byte == '\n') {
            if (field && field != width) return UNCLEAN;
            line += field > 0;
            field = 0;
            at++;
            continue;
        }
        if (byte == ' ' || byte == '\t' || byte == '\r') {
            at++;
            continue;
        }
        number begin = at, negative = byte == '-', value = 0;
        at += negative;
        number digits = at;
        while (at < size && text[at] >= '0' && text[at] <= '9' && at - begin < MOST_DIGITS)
            value = value * 10 + (text[at++] - '0');
        /* After the digits only a blank may stand: another digit would be one too many. */
        if (at == digits || (at < size && text[at] != ' ' && text[at] != '\n' && text[at] != '\t' && text[at] != '\r'))
            return UNCLEAN;
        if (field == width || line == most) return UNCLEAN;
        if (!negative) signs[field] = 1;
        if (place[field] >= 0) columns[place[field] * most + line] = (double)(negative ? -value : value);
        field++;
    }
    if (field && field != width) return UNCLEAN;
    return line + (field > 0);
}

enum { NUMBERS, FRACTIONS, CHOICES, WORDS, SPANS };

typedef struct {
    number kind;
    const number *numbers; /* NUMBERS: it; FRACTIONS: it, -1 for the next word; CHOICES: which; SPANS: how many */
    const char *text;      /* CHOICES: the texts; WORDS, FRACTIONS: words, each ended by a line feed */
    const number *ends;    /* CHOICES: where each text begins, and where the last one ends */
    const number *first;   /* SPANS: each line's first */
    const int32_t *low, *high; /* SPANS: from one to before another */
    number each;               /* SPANS: so many numbers for each step */
} Cells;

static char *write_number(char *out, number value) {
    char digits[20];
    int count = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0) *out++ = '-';
    do digits[count++] = (char)('0' + left % 10);
    while (left /= 10);
    while (count) *out++ = digits[--count];
    return out;
}

static char *write_word(char *out, const char **text) {
    const char *from = *text;
    while (*from != '\n') *out++ = *from++;
    *text = from + 1;
    return out;
}

static char *write_spans(char *out, const Cells *cells, number line) {
    const number begin = cells->first[line], end = begin + cells->numbers[line], each = cells->each;
    for (number span = begin; span < end; span++) {
        number low = cells->low[span] * each, last = cells->high[span] * each - 1;
        if (span > begin) *out++ = ' ';
        out = write_number(out, low);
        if (last > low) {
            *out++ = '-';
            out = write_number(out, last);
        }
    }
    return out;
}

static char *write_cell(char *out, Cells *cells, number line) {
    switch (cells->kind) {
    case NUMBERS:
        return write_number(out, cells->numbers[line]);
    case FRACTIONS:
        if (cells->numbers[line] < 0) return write_word(out, &cells->text);
        out = write_number(out, cells->numbers[line]);
        *out++ = '.';
        *out++ = '0';
        return out;
    case WORDS:
        return write_word(out, &cells->text);
    case SPANS:
        return write_spans(out, cells, line);
    }
    const number *ends = cells->ends + cells->numbers[line];
    size_t length = (size_t)(ends[1] - ends[0]);
    memcpy(out, cells->text + ends[0], length);
    return out + length;
}

/* Lines `from` to before `to` of so many columns of cells, with commas between; each ends with a line feed.
 * `out` has room for all of them. How many bytes were written. O(bytes). */
number dovetail_write_lines(Cells *cells, number columns, number from, number to, char *out) {
    char *at = out;
    for (number line = from; line < to; line++)
        for (number column = 0; column < columns; column++) {
            at = write_cell(at, cells + column, line);
            *at++ = column + 1 < columns ? ',' : '\n';
        }
    return at - out;
}
