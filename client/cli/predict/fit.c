#include "client/cli/predict/fit.h"

#include "client/cli/show.h"

/* In the order of gp_fit. */
const char *const fit_words[] = { "model", "input", "resize", "windows", "crop", NULL };

int fit_check(cli_call *call, const fit_options *fit, const int64_t image_size[2])
{
    if ((fit->fit == GP_FIT_RESIZE || fit->fit == GP_FIT_CROP) && image_size[0] != 0)
        return cli_usage(call, "--image-size is of windows and middles; --fit is %s", fit_words[fit->fit]);
    if ((fit->fit == GP_FIT_RESIZE || fit->fit == GP_FIT_INPUT) && fit->overlap != 0)
        return cli_usage(call, "--overlap is of windows; --fit is %s", fit_words[fit->fit]);
    return CLI_OK;
}

static void fit_note(void *context, const char *text)
{
    (void)context;
    show_line(stderr, text);
}

void fit_request(const cli_call *call, gp_predict_request *request, const fit_options *fit)
{
    request->note = ((const cli_common *)call->options)->quiet ? NULL : fit_note;
    request->fit = (gp_fit)fit->fit;
    request->overlap = (uint32_t)fit->overlap;
}
