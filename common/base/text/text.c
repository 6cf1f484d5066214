#include "common/base/text/text.h"

#include <stdio.h>
#include <stdlib.h>

const char *gp_number_text(double value, char text[GP_NUMBER_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, GP_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

const char *gp_float_text(float value, char text[GP_NUMBER_BYTES])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, GP_NUMBER_BYTES, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}
