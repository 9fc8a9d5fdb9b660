#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"serve", cmd_serve, "serve a model over HTTP, with a page to chat"},
    {"run", cmd_run, "chat in the terminal, or answer one prompt"},
    {"pull", cmd_pull, "fetch a model from Hugging Face, or a server like it"},
    {"list", cmd_list, "the models that were pulled"},
    {"rm", cmd_rm, "delete a model that was pulled"},
    {"info", cmd_info, "what is inside a GGUF file, and what this machine can run"},
    {"cache", cmd_cache, "look into the cache of a running server"},
    {"tokenize", cmd_tokenize, "text to token ids"},
    {"detokenize", cmd_detokenize, "token ids to text"},
    {"template", cmd_template, "messages to the text of a prompt"},
    {"logits", cmd_logits, "token ids to logits"},
    {"embed", cmd_embed, "text to its vector, by an embedding model"},
    {"bench", cmd_bench, "measure prefill and decode"},
    {"verify", cmd_verify, "check that nothing but weights, tokens and positions changes logits"},
    {"perplexity", cmd_perplexity, "how well a model predicts a text"},
    {"sim", cmd_sim, "replay a trace: what a cache would have found"},
};

static void print_help(FILE *to) {
    fputs("usage: incipit COMMAND [options]\n\n"
          "An LLM server whose prefix cache never changes an answer.\n\ncommands:\n",
          to);
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].about);
    fputs("\n`incipit COMMAND --help` tells more; so does incipit(1).\n", to);
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("incipit %s\n", icp_version());
        return EXIT_DONE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    if (name[0]) fprintf(stderr, "incipit: there is no command \"%s\"\n", name);
    print_help(stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (code == EXIT_DONE && (fflush(stdout) || ferror(stdout)))
        return cli_say("cannot write to stdout"); /* a full disk is no success */
    return code;
}
