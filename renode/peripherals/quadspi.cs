// QUADSPI and the flash behind it, an N25Q128A (RM0385, chapter 14), as far as the firmware uses them: commands are over at
// once, READ ID is answered, and the core reads the flash where the window is set up as that flash needs it. The window of
// tools/emulator/peripherals/quadspi.py also takes pins and clocks.
using System;
using System.Collections.Generic;
using System.Linq;

using Antmicro.Renode.Core;
using Antmicro.Renode.Logging;
using Antmicro.Renode.Peripherals.Bus;
using Antmicro.Renode.Peripherals.CPU;
using Antmicro.Renode.Peripherals.Memory;

using Range = Antmicro.Renode.Core.Range;

namespace Antmicro.Renode.Peripherals.SPI
{
    [AllowedTranslations(AllowedTranslation.ByteToDoubleWord | AllowedTranslation.WordToDoubleWord)]
    public class F746_QuadSPI : IDoubleWordPeripheral, IKnownSize
    {
        public F746_QuadSPI(IMachine machine, F746_ExternalFlash flash)
        {
            this.flash = flash;
            Reset();
        }

        public void Reset()
        {
            registers.Clear();
            complete = unread = false;
            flash.Open = false;
        }

        public uint ReadDoubleWord(long offset)
        {
            if(offset == Status)
            {
                return (complete ? TransferComplete : 0) | (IsBusy ? Busy : 0);
            }
            if(offset == Data && unread)
            {
                unread = false;
                return Identity;
            }
            return Register(offset);
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            if(offset == FlagClear)
            {
                complete &= (value & TransferComplete) == 0;
                return;
            }
            if(offset == Control && (value & Abort) != 0)
            {
                registers[Command] = 0;
                value &= ~Abort;
                unread = false;
            }
            if(IsBusy && offset != Control)
            {
                this.Log(LogLevel.Error, "0x{0:X} is written while QUADSPI is busy: nothing comes of it", offset);
                return;
            }
            registers[offset] = value;
            if(offset == Command && !IsMapped && IsOn)
            {
                complete = true;
                unread = (value & (FunctionalMode | DataLines | InstructionMask)) == (Read | OneLine | ReadId);
            }
            flash.Open = IsMapped && IsOn && IsAsTheFlashNeedsIt();
        }

        public long Size => 0x400;

        private uint Register(long offset)
        {
            uint value;
            registers.TryGetValue(offset, out value);
            return value;
        }

        private bool IsAsTheFlashNeedsIt()
        {
            var right = Register(Command) == QuadIoFastRead && (Register(Device) >> 16 & 31) == SizeLog2 - 1;
            if(!right)
            {
                this.Log(LogLevel.Error, "CCR 0x{0:X} and DCR 0x{1:X}: the window stays shut, the flash does not read so", Register(Command), Register(Device));
            }
            return right;
        }

        private bool IsOn => (Register(Control) & Enable) != 0;

        private bool IsMapped => (Register(Command) & MemoryMapped) == MemoryMapped;

        // Until the command is over and what came of it has been read.
        private bool IsBusy => flash.Open || unread;

        private bool complete;
        private bool unread;

        private readonly F746_ExternalFlash flash;
        private readonly Dictionary<long, uint> registers = new Dictionary<long, uint>();

        private const long Control = 0x00;
        private const long Device = 0x04;
        private const long Status = 0x08;
        private const long FlagClear = 0x0C;
        private const long Command = 0x14;
        private const long Data = 0x20;
        private const uint Enable = 1u << 0;
        private const uint Abort = 1u << 1;
        private const uint TransferComplete = 1u << 1;
        private const uint Busy = 1u << 5;
        private const uint InstructionMask = 0xFF;
        private const uint MemoryMapped = 3u << 26;
        private const uint FunctionalMode = 3u << 26;
        private const uint Read = 1u << 26;
        private const uint DataLines = 3u << 24;
        private const uint OneLine = 1u << 24;
        private const uint ReadId = 0x9F;
        private const uint Identity = 0x1018BA20;
        private const uint QuadIoFastRead = 0x0F282DEB; // 0xEB on one line, 24 bits of address and data on four, 10 dummy cycles
        private const int SizeLog2 = 24;
    }

    // The bytes, which outlive every reset. What is not the core (the loader of an ELF, the monitor) reads and writes them always.
    public class F746_ExternalFlash : IMemory
    {
        public F746_ExternalFlash(IMachine machine)
        {
            this.machine = machine;
            content = new MappedMemory(machine, FlashSize, FlashSize);
            content.ResetByte = Erased;
            content.TouchAllSegments();
        }

        public void Reset()
        {
        }

        public byte ReadByte(long offset)
        {
            return Answers(offset) ? content.ReadByte(offset) : Erased;
        }

        public ushort ReadWord(long offset)
        {
            return Answers(offset) ? content.ReadWord(offset) : ushort.MaxValue;
        }

        public uint ReadDoubleWord(long offset)
        {
            return Answers(offset) ? content.ReadDoubleWord(offset) : uint.MaxValue;
        }

        public ulong ReadQuadWord(long offset)
        {
            return Answers(offset) ? content.ReadQuadWord(offset) : ulong.MaxValue;
        }

        public void WriteByte(long offset, byte value)
        {
            Store(offset, new[] { value });
        }

        public void WriteWord(long offset, ushort value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public void WriteQuadWord(long offset, ulong value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public byte[] ReadBytes(long offset, int count, IPeripheral context = null)
        {
            return content.ReadBytes(offset, count);
        }

        public void WriteBytes(long offset, byte[] array, int startingIndex, int count, IPeripheral context = null)
        {
            content.WriteBytes(offset, array, startingIndex, count);
        }

        // Whether QUADSPI shows it to the core, which then reads it at full speed.
        public bool Open
        {
            get
            {
                return open;
            }

            set
            {
                if(open == value)
                {
                    return;
                }
                open = value;
                foreach(var cpu in machine.SystemBus.GetCPUs().OfType<TranslationCPU>())
                {
                    Show(cpu);
                }
            }
        }

        public long Size => FlashSize;

        private void Show(TranslationCPU cpu)
        {
            if(shown.Add(cpu))
            {
                foreach(var segment in content.MappedSegments)
                {
                    cpu.MapMemory(new Window(segment));
                }
            }
            cpu.SetMappedMemoryEnabled(new Range(Base, FlashSize), open);
        }

        private bool Answers(long offset)
        {
            if(open || !IsCore)
            {
                return true;
            }
            this.Log(LogLevel.Error, "0x{0:X} is read while QUADSPI keeps the window shut", Base + (ulong)offset);
            return false;
        }

        private void Store(long offset, byte[] data)
        {
            if(IsCore)
            {
                this.Log(LogLevel.Error, "a store to 0x{0:X}, in flash beside the chip", Base + (ulong)offset);
                return;
            }
            WriteBytes(offset, data, 0, data.Length);
        }

        private bool IsCore
        {
            get
            {
                ICPU cpu;
                return machine.SystemBus.TryGetCurrentCPU(out cpu);
            }
        }

        private bool open;

        private readonly IMachine machine;
        private readonly MappedMemory content;
        private readonly HashSet<TranslationCPU> shown = new HashSet<TranslationCPU>();

        private const byte Erased = 0xFF;
        private const ulong Base = 0x90000000;
        private const int FlashSize = 0x1000000;

        // A part of the bytes, where the core sees it.
        private class Window : IMappedSegment
        {
            public Window(IMappedSegment part)
            {
                this.part = part;
            }

            public void Touch()
            {
                part.Touch();
            }

            public IntPtr Pointer => part.Pointer;

            public ulong StartingOffset => Base + part.StartingOffset;

            public ulong Size => part.Size;

            private readonly IMappedSegment part;
        }
    }
}
