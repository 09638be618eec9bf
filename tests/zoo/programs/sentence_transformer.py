# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""sentence-transformers' fit of a small BERT with random weights, on sentences of random words; its words are made from a file here."""

import os

import clock
import faults
import torch
from sentence_transformers import SentenceTransformer, models
from sentence_transformers.losses import CosineSimilarityLoss
from transformers import BertConfig, BertModel, BertTokenizer

BATCH = 8
folder = os.environ["ZOO_TRUTH"] + ".bert"
os.makedirs(folder)
with open(folder + "/vocab.txt", "w") as file:
    file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % i for i in range(500)]))
BertTokenizer(folder + "/vocab.txt").save_pretrained(folder)
BertModel(BertConfig(vocab_size=505, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)).save_pretrained(folder)
word = models.Transformer(folder, max_seq_length=32)
model = SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())], device="cpu")


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        from sentence_transformers import InputExample

        words = ["w%d" % w for w in torch.randint(0, 500, (20,)).tolist()]
        return InputExample(texts=[" ".join(words[:10]), " ".join(words[10:])], label=float(i % 2))


clock.by_optimizer()
faults.arm()
loader = torch.utils.data.DataLoader(faults.dataset(Pairs(), BATCH), batch_size=BATCH, shuffle=True)
model.old_fit([(loader, CosineSimilarityLoss(model))], epochs=10**4, warmup_steps=0, show_progress_bar=False)
